// Runs any kernel of the table from Python, on arrays of torch or numpy. Which calls a kernel takes
// is the table's (csrc/table); no computation here.
#include "bind/table.h"

#include <list>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind/array_argument.h"
#include "bind/tensor_argument.h"
#include "table/kernel.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

// Room for what a kernel says of its failure.
constexpr std::size_t kTextBytes = 512;
// Elements of operands from which on a call lets other threads of Python run.
constexpr std::int64_t kElementsApart = 8192;

// A call's arguments as the table takes them, and the Python objects behind them, which live as
// long as this.
class PythonArguments {
 public:
  explicit PythonArguments(const nb::tuple& arguments) {
    arguments_.reserve(arguments.size());
    for (const nb::handle argument : arguments) {
      arguments_.push_back(converted(argument));
    }
  }

  const KernelArgument* data() const { return arguments_.data(); }
  std::size_t size() const { return arguments_.size(); }
  std::int64_t elements() const { return elements_; }

 private:
  KernelArgument converted(nb::handle object) {
    KernelArgument argument;
    if (object.is_none()) {
      return argument;
    }
    if (nb::isinstance<nb::bool_>(object) || nb::isinstance<nb::int_>(object)) {
      set_integer(argument, object);
    } else if (nb::isinstance<nb::float_>(object)) {
      argument.kind = ArgumentKind::Real;
      argument.real = nb::cast<double>(object);
    } else if (nb::isinstance<nb::str>(object)) {
      argument.kind = ArgumentKind::Text;
      argument.text = nb::borrow<nb::str>(object).c_str();
    } else if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
      set_integers(argument, object);
    } else {
      argument.kind = ArgumentKind::Tensor;
      argument.tensor = tensor_of(object);
    }
    return argument;
  }

  // An argument that no kernel reads, such as an integer of more than 64 bits.
  static void set_other(KernelArgument& argument) {
    argument.kind = ArgumentKind::Tensor;
    argument.tensor = {nullptr, nullptr, nullptr, 0, KernelElement::Other};
  }

  static void set_integer(KernelArgument& argument, nb::handle object) {
    std::int64_t integer = 0;
    if (!nb::try_cast(object, integer)) {
      return set_other(argument);
    }
    argument.kind = ArgumentKind::Integer;
    argument.integer = integer;
  }

  void set_integers(KernelArgument& argument, nb::handle numbers) {
    std::vector<std::int64_t>& list = lists_.emplace_back();
    for (const nb::handle number : numbers) {
      if (!nb::try_cast(number, list.emplace_back())) {
        return set_other(argument);
      }
    }
    argument.kind = ArgumentKind::Integers;
    argument.integers = {list.data(), list.size()};
  }

  KernelTensor tensor_of(nb::handle object) {
    const AnyTensor& tensor = tensors_.emplace_back(object);
    if (!tensor.view()) {
      return {nullptr, nullptr, nullptr, 0, KernelElement::Other};
    }
    const TensorView& view = *tensor.view();
    elements_ += view.elements();
    const std::int64_t* strides = view.strides;
    if (strides == nullptr) {
      strides = contiguous_.emplace_back(view).view().strides;
    }
    return {view.data, view.shape, strides, view.rank, static_cast<KernelElement>(view.element)};
  }

  std::vector<KernelArgument> arguments_;
  std::int64_t elements_ = 0;
  // Lists, which allocate nothing while they are empty, and whose members stay where they are.
  std::list<AnyTensor> tensors_;
  std::list<Contiguous> contiguous_;
  std::list<std::vector<std::int64_t>> lists_;
};

// numpy's function `empty`, and its dtypes by element: without Python's own call and the reading of
// a dtype's name an array is made in half the time. The interpreter's lock guards the cache.
class Numpy {
 public:
  static nb::object empty(Element element, const nb::tuple& shape) {
    static const Numpy& numpy = *new Numpy;  // outlives the interpreter
    return numpy.empty_(shape, numpy.dtypes_[static_cast<std::size_t>(element)]);
  }

 private:
  Numpy() {
    const nb::module_ numpy = nb::module_::import_("numpy");
    empty_ = numpy.attr("empty");
    for (int element = 0; element <= static_cast<int>(Element::kInt16); ++element) {
      const auto known = static_cast<Element>(element);
      // numpy has no bfloat16: its uint16 arrays stand for the bits.
      dtypes_.append(
          numpy.attr("dtype")(known == Element::kBfloat16 ? "uint16" : element_name(known)));
    }
  }

  nb::object empty_;
  nb::list dtypes_;
};

// The arrays that a call makes, by Python's `make(element, sizes)`, or numpy's without one.
class PythonResults {
 public:
  explicit PythonResults(nb::handle make) : make_(make) {}

  static int make(void* context, KernelElement element, const std::int64_t* sizes,
                  std::int32_t dims, void** data) {
    const nb::gil_scoped_acquire locked;
    auto& results = *static_cast<PythonResults*>(context);
    try {
      const auto shape = nb::steal<nb::tuple>(PyTuple_New(dims));
      for (std::int32_t dim = 0; dim < dims; ++dim) {
        PyTuple_SetItem(shape.ptr(), dim, PyLong_FromLongLong(sizes[dim]));
      }
      const auto known = static_cast<Element>(element);
      nb::object array = results.make_.is_none() ? Numpy::empty(known, shape)
                                                 : results.make_(element_name(known), shape);
      *data = OutputArgument("a kernel", "its result", array).view().data;
      results.arrays_.append(array);
      return 0;
    } catch (nb::python_error& error) {
      results.error_.emplace(error);
      return -1;
    }
  }

  // Throws what `make` has thrown.
  nb::tuple arrays() const {
    if (error_) {
      throw nb::python_error(*error_);
    }
    return nb::tuple(arrays_);
  }

 private:
  nb::handle make_;
  nb::list arrays_;
  std::optional<nb::python_error> error_;
};

nb::object run(const char* name, nb::tuple arguments, nb::object make, int threads,
               int threads_most, bool takes_all, bool has_mkl) {
  const KernelRow* row = find_kernel(name);
  if (row == nullptr) {
    throw nb::key_error(name);
  }
  checked_threads(name, threads);
  checked_threads(name, threads_most);
  const PythonArguments given(arguments);
  PythonResults results(make);
  const KernelCaller caller{&results, &PythonResults::make, threads, threads_most, takes_all,
                            has_mkl};
  char text[kTextBytes];
  int count = 0;
  {
    std::optional<nb::gil_scoped_release> release;
    if (given.elements() >= kElementsApart) {
      release.emplace();
    }
    count = row->entry(given.data(), given.size(), caller, text, sizeof text);
  }
  if (count == NOT_TAKEN) {
    return nb::none();
  }
  nb::tuple arrays = results.arrays();
  if (count == KERNEL_HAS_NO_MEMORY) {
    throw std::bad_alloc();
  }
  if (count == KERNEL_FAILED) {
    throw std::runtime_error(text);
  }
  return arrays;
}

}  // namespace

void bind_table(nb::module_& module) {
  module.def("run", &run, "name"_a, "arguments"_a, "make"_a.none() = nb::none(), "threads"_a = 1,
             "threads_most"_a = 1, "takes_all"_a = true, "has_mkl"_a = false,
             R"(Runs a kernel of the table (csrc/table) on arrays of torch or numpy.

Args:
    name: The kernel's.
    arguments: As its call reads them: arrays, numbers, tuples of integers, names of dtypes, None.
    make: Makes a result: a contiguous array on the CPU, of a dtype by name and of sizes. None for
        numpy's.
    threads: Threads to use at most, 1 to 256.
    threads_most: The same for products and updates.
    takes_all: Also calls for which the kernel is not the fastest.
    has_mkl: MKL computes the caller's other products.

Returns:
    The results; None where the kernel does not take the call.

Raises:
    KeyError: There is no such kernel.
    MemoryError: There is no memory for what the kernel works with.)");
}

}  // namespace gt
