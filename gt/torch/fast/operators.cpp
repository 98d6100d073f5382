// Kernels of operators whose tensors are all of the device `mux`: each calls the GT function that
// the path in Python calls, with the same arguments. Everything else goes that path.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "objects.h"

namespace gt {

using c10::DispatchKey;
using c10::DispatchKeySet;
using Stack = torch::jit::Stack;

// Limit of an operator's arguments here; those with more are few and go the path in Python.
constexpr size_t kArgumentsMax = 24;

// Uses of a GT function by an operator; the numbers are those of gt/torch/fast/offers.py.
enum class Use : int {
  kFunction = 0,  // its results are the operator's
  kView = 1,      // its results share memory with the first operand
  kWrite = 2,     // it writes the first operand, which is the operator's result
};

// Number of operators that ran here, and whether they may.
std::atomic<uint64_t> calls{0};
std::atomic<bool> is_on{true};

namespace {

// Keys of the layers above the one that these kernels are of, which have had their turn.
const DispatchKeySet kAbovePython =
    DispatchKeySet(DispatchKeySet::FULL) ^
    (DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Python) |
     DispatchKeySet(DispatchKey::Python));

// Registrations, which end with their handles: they stay.
std::vector<c10::RegistrationHandleRAII>& registrations() {
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>();
  return *kept;
}

class Lock {
 public:
  Lock() : state_(PyGILState_Ensure()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

// Makes ready a thread that calls its first operator.
void enter_thread() {
  thread_local bool has_entered = false;
  if (has_entered) return;
  const Owned done(PyObject_CallNoArgs(front.enter_thread));
  if (done.get() == nullptr) throw_error();
  has_entered = true;
}

bool equals_default(const at::IValue& value, const at::IValue& usual) {
  if (value.isInt() && usual.isInt()) return value.toInt() == usual.toInt();
  if (value.isNone() || usual.isNone()) return value.isNone() && usual.isNone();
  if (value.isTensor() || usual.isTensor()) return false;
  return value == usual;
}

// A call of a GT function: its arguments, which it owns.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    for (size_t place = 0; place < count_; ++place) Py_DECREF(arguments_[place + 1]);
    Py_XDECREF(names_);
  }

  void add(PyObject* argument) { arguments_[1 + count_++] = argument; }

  // `name` is borrowed.
  void add(PyObject* name, PyObject* argument) {
    add(argument);
    named_[names_count_++] = name;
  }

  PyObject* first() const { return arguments_[1]; }

  // Runs the function; a new reference, or null with an error.
  PyObject* run(PyObject* function) {
    if (names_count_ != 0) {
      names_ = PyTuple_New(static_cast<Py_ssize_t>(names_count_));
      if (names_ == nullptr) return nullptr;
      for (size_t place = 0; place < names_count_; ++place) {
        PyTuple_SET_ITEM(names_, static_cast<Py_ssize_t>(place), Py_NewRef(named_[place]));
      }
    }
    const size_t positional = count_ - names_count_;
    return PyObject_Vectorcall(function, arguments_.data() + 1,
                               positional | PY_VECTORCALL_ARGUMENTS_OFFSET, names_);
  }

 private:
  std::array<PyObject*, kArgumentsMax + 1> arguments_;  // the first place is the callee's
  std::array<PyObject*, kArgumentsMax> named_;
  size_t count_ = 0;
  size_t names_count_ = 0;
  PyObject* names_ = nullptr;
};

// The type itself, or the type that is optional.
const c10::Type& required(const c10::Type& type) {
  const bool is_optional = type.kind() == c10::TypeKind::OptionalType;
  return is_optional ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
}

struct Argument {
  Kind kind;
  bool is_named;
  PyObject* name;
  std::optional<at::IValue> usual;
};

// An operator, and the GT function that runs it.
class Operator {
 public:
  Operator(const c10::OperatorHandle& handle, Use use, PyObject* function)
      : use_(use), function_(Py_NewRef(function)), results_(handle.schema().returns()) {
    for (const auto& argument : handle.schema().arguments()) {
      arguments_.push_back({kind_of(argument), argument.kwarg_only(),
                            PyUnicode_InternFromString(argument.name().c_str()),
                            argument.default_value()});
    }
    for (const auto& argument : arguments_) positional_ += argument.is_named ? 0 : 1;
  }

  // True if the operator ran: its results stand in the place of its arguments.
  bool run(Stack* stack) const {
    if (use_ == Use::kView && c10::InferenceMode::is_enabled()) return false;
    if (!is_on.load(std::memory_order_relaxed)) return false;
    const Lock lock;
    Call call;
    if (!convert(stack, call)) return false;
    enter_thread();
    if (PyDict_GET_SIZE(front.scopes) != 0) look(*stack);
    const c10::impl::ExcludeDispatchKeyGuard guard(kAbovePython);
    const Owned result(call.run(function_));
    if (result.get() == nullptr) throw_error();
    finish(stack, call, result.get());
    calls.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  static Kind kind_of(const c10::Argument& argument) {
    const auto& name = argument.name();
    if (argument.kwarg_only()) {
      if (name == "device") return Kind::kDevice;
      if (name == "layout") return Kind::kLayout;
      if (name == "pin_memory" || name == "memory_format" || name == "implicit" ||
          name == "non_blocking") {
        return Kind::kPlace;
      }
    }
    const auto kind = required(*argument.real_type()).kind();
    return kind == c10::TypeKind::ScalarTypeType ? Kind::kDtype : Kind::kValue;
  }

 private:
  // Opens the scope of the running node, or records the operator's own (backward_scopes.py).
  void look(const Stack& stack) const {
    const Owned tensors(PyList_New(0));
    if (tensors.get() == nullptr) throw_error();
    for (size_t place = stack.size() - arguments_.size(); place < stack.size(); ++place) {
      append_tensors(stack[place], tensors.get());
    }
    const Owned done(PyObject_CallFunctionObjArgs(front.look, tensors.get(), Py_None, nullptr));
    if (done.get() == nullptr) throw_error();
  }

  bool convert(const Stack* stack, Call& call) const {
    const auto* values = stack->data() + (stack->size() - arguments_.size());
    size_t shown = positional_;  // PyTorch leaves out the last ones that have their defaults
    while (shown > 0 && arguments_[shown - 1].usual.has_value() &&
           equals_default(values[shown - 1], *arguments_[shown - 1].usual)) {
      --shown;
    }
    for (size_t place = 0; place < arguments_.size(); ++place) {
      const auto& argument = arguments_[place];
      const auto& value = values[place];
      if (argument.is_named ? is_left_out(argument, value) : place >= shown) continue;
      if (argument.kind == Kind::kDevice) {
        if (value.toDevice().is_privateuseone()) continue;
        return false;
      }
      if (argument.kind == Kind::kLayout) {
        if (value.toLayout() == at::kStrided) continue;
        return false;
      }
      PyObject* object = argument_of(value, argument.kind);
      if (object == nullptr) {
        PyErr_Clear();
        return false;
      }
      argument.is_named ? call.add(argument.name, object) : call.add(object);
    }
    return true;
  }

  static bool is_left_out(const Argument& argument, const at::IValue& value) {
    if (argument.kind == Kind::kPlace) return true;
    if (value.isNone() && argument.kind != Kind::kValue) return true;
    return argument.usual.has_value() && equals_default(value, *argument.usual);
  }

  void finish(Stack* stack, const Call& call, PyObject* result) const {
    const size_t count = arguments_.size();
    if (use_ == Use::kWrite || results_.empty()) {
      torch::jit::drop(*stack, count - results_.size());
      return;
    }
    const Owned detached(use_ == Use::kView && result == call.first()
                             ? PyObject_CallMethod(result, "detach", nullptr)
                             : Py_NewRef(result));
    if (detached.get() == nullptr) throw_error();
    if (results_.size() == 1) {
      auto value = result_of(detached.get(), *results_[0].type());
      torch::jit::drop(*stack, count);
      stack->push_back(std::move(value));
      return;
    }
    const Owned entries(PySequence_Fast(detached.get(), "several results were expected"));
    if (entries.get() == nullptr) throw_error();
    TORCH_CHECK(static_cast<size_t>(PySequence_Fast_GET_SIZE(entries.get())) == results_.size(),
                "results of an operator of mux: ", results_.size(), " expected, not ",
                PySequence_Fast_GET_SIZE(entries.get()));
    std::vector<at::IValue> values;
    for (size_t place = 0; place < results_.size(); ++place) {
      values.push_back(
          result_of(PySequence_Fast_GET_ITEM(entries.get(), static_cast<Py_ssize_t>(place)),
                    *results_[place].type()));
    }
    torch::jit::drop(*stack, count);
    for (auto& value : values) stack->push_back(std::move(value));
  }

  Use use_;
  PyObject* function_;
  std::vector<Argument> arguments_;
  size_t positional_ = 0;
  std::vector<c10::Argument> results_;
};

// Places of a kernel among PyTorch's layers.
enum class Place : uint8_t {
  kBelowAutograd,
  kAboveAutograd,  // where autograd records, the operator is composed of others (composites.py)
};

// An operator that runs here if it can, else by the kernel that it had before.
class Direct final : public c10::OperatorKernel {
 public:
  Direct(c10::SafeKernelFunction rest, Operator operation, Place place)
      : rest_(std::move(rest)), operator_(std::move(operation)), place_(place) {}

  void operator()(const c10::OperatorHandle& handle, DispatchKeySet keys, Stack* stack) {
    const bool is_recorded = place_ == Place::kAboveAutograd && at::GradMode::is_enabled();
    const bool is_watched = c10::impl::TorchDispatchModeTLS::stack_len() != 0;
    if (is_recorded || is_watched || !operator_.run(stack)) rest_.callBoxed(handle, keys, stack);
  }

 private:
  c10::SafeKernelFunction rest_;
  Operator operator_;
  Place place_;
};

// `linear` or `matmul` above autograd, as one node of its graph (gt/torch/composites.py).
class Recorded final : public c10::OperatorKernel {
 public:
  explicit Recorded(c10::SafeKernelFunction rest) : rest_(std::move(rest)) {}

  void operator()(const c10::OperatorHandle& handle, DispatchKeySet keys, Stack* stack) {
    if (is_whole(*stack, handle.schema().arguments().size())) {
      handle.callBoxedForDispatchKey(DispatchKey::Autograd, *stack);
    } else {
      rest_.callBoxed(handle, keys, stack);
    }
  }

 private:
  static bool is_whole(const Stack& stack, size_t count) {
    if (torch::autograd::ForwardADLevel::has_any_level()) return false;
    const Lock lock;
    for (size_t place = 0; place < count; ++place) {
      const auto& value = stack[stack.size() - count + place];
      if (value.isNone()) continue;
      const auto& tensor = value.toTensor();
      if (!tensor.defined()) continue;
      if (!is_of_device(tensor) || tensor.is_complex()) return false;
      // Autograd does not pass the shape of its bias to the gradient of `linear`.
      if (place == 2 && tensor.dim() > 1) return false;
    }
    return true;
  }

  c10::SafeKernelFunction rest_;
};

bool is_number(c10::TypeKind kind) {
  return kind == c10::TypeKind::BoolType || kind == c10::TypeKind::FloatType ||
         kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType;
}

bool is_known_result(const c10::Argument& result) {
  const auto& type = *result.real_type();
  if (type.kind() != c10::TypeKind::ListType) {
    return type.kind() == c10::TypeKind::TensorType || is_number(type.kind());
  }
  return type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_known_argument(const c10::Argument& argument) {
  if (Operator::kind_of(argument) != Kind::kValue) return true;
  const c10::Type* type = &required(*argument.real_type());
  if (type->kind() == c10::TypeKind::ListType) {
    type = &required(*type->castRaw<c10::ListType>()->getElementType());
  }
  return type->kind() == c10::TypeKind::TensorType || type->kind() == c10::TypeKind::NumberType ||
         type->kind() == c10::TypeKind::StringType ||
         type->kind() == c10::TypeKind::GeneratorType || is_number(type->kind());
}

// True if the operator's arguments and results are of types that the fast path knows.
bool fits(const c10::FunctionSchema& schema, Use use) {
  const auto &arguments = schema.arguments(), &results = schema.returns();
  if (arguments.size() > kArgumentsMax || arguments.empty()) return false;
  if (!std::all_of(arguments.begin(), arguments.end(), is_known_argument)) return false;
  if (use == Use::kWrite) return results.size() <= 1;
  return std::all_of(results.begin(), results.end(), is_known_result);
}

// Warnings of PyTorch's about a kernel in place of another, which is meant here.
class Unheard final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

void keep(const c10::OperatorHandle& handle, DispatchKey key, c10::KernelFunction kernel) {
  Unheard unheard;
  const c10::WarningUtils::WarningHandlerGuard guard(&unheard);
  registrations().push_back(c10::Dispatcher::singleton().registerImpl(
      handle.operator_name(), key, std::move(kernel), std::nullopt, nullptr, "gt.torch"));
}

}  // namespace

bool install(const char* name, const char* overload, Use use, PyObject* function) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle.has_value() || !fits(handle->schema(), use)) return false;
  const auto key = DispatchKey::Python;
  keep(*handle, key,
       c10::KernelFunction::makeFromBoxedFunctor(
           std::make_unique<Direct>(handle->getComputedKernelForDispatchKey(key),
                                    Operator(*handle, use, function), Place::kBelowAutograd)));
  return true;
}

bool install_gradient(const char* name, const char* overload, PyObject* function) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle.has_value() || !fits(handle->schema(), Use::kFunction)) return false;
  const auto key = DispatchKey::AutogradPrivateUse1;
  keep(*handle, key,
       c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Direct>(
           handle->getComputedKernelForDispatchKey(key),
           Operator(*handle, Use::kFunction, function), Place::kAboveAutograd)));
  return true;
}

bool install_recorded(const char* name, const char* overload) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle.has_value()) return false;
  const auto key = DispatchKey::AutogradPrivateUse1;
  keep(*handle, key,
       c10::KernelFunction::makeFromBoxedFunctor(
           std::make_unique<Recorded>(handle->getComputedKernelForDispatchKey(key))));
  return true;
}

}  // namespace gt
