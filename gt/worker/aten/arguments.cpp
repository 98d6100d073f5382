// Values of a call's arguments, from a run's operands and its results so far.
#include <ATen/ScalarOps.h>
#include <c10/util/Exception.h>

#include "frame.h"

namespace gt {

namespace {

c10::IValue number(const Operand& operand) {
  switch (operand.kind) {
    case Kind::Bool:
      return operand.bits != 0;
    case Kind::Int:
      return std::bit_cast<int64_t>(operand.bits);
    case Kind::Float:
      return std::bit_cast<double>(operand.bits);
    case Kind::Absent:
    case Kind::Tensor:
      break;
  }
  return {};
}

at::Tensor wrapped(const Operand& operand) {
  return at::native::wrapped_scalar_tensor(number(operand).toScalar());
}

// The last `count` sizes of an operand; all of them if `count` is negative.
std::vector<int64_t> sizes(const Operand& operand, int64_t count) {
  Borrowed tensor(operand);
  at::IntArrayRef all = (*tensor).sizes();
  TORCH_CHECK(count <= (*tensor).dim(), count, " sizes of ", all);
  return (count < 0 ? all : all.slice(all.size() - static_cast<size_t>(count))).vec();
}

}  // namespace

at::Tensor tensor(const Argument& argument, const Frame& frame) {
  const Operand& operand = frame.operands[argument.index];
  switch (argument.source) {
    case Source::Operand:
      return *Borrowed(operand);
    case Source::Wrapped:
      return operand.kind == Kind::Tensor ? *Borrowed(operand) : wrapped(operand);
    case Source::Temporary:
      return frame.temporaries[argument.index].toTensor();
    case Source::Constant:
    case Source::List:
    case Source::OptionalList:
    case Source::DtypeOf:
    case Source::SizesOf:
      break;
  }
  return {};
}

c10::IValue value(const Argument& argument, const Frame& frame) {
  switch (argument.source) {
    case Source::Constant:
      return argument.constant;
    case Source::Operand:
      if (frame.operands[argument.index].kind != Kind::Tensor)
        return number(frame.operands[argument.index]);
      return tensor(argument, frame);
    case Source::Wrapped:
      return tensor(argument, frame);
    case Source::Temporary:
      return frame.temporaries[argument.index];
    case Source::DtypeOf:
      return static_cast<int64_t>(tensor(argument.parts[0], frame).scalar_type());
    case Source::SizesOf:
      return sizes(frame.operands[argument.index], argument.constant.toInt());
    case Source::List: {
      c10::List<at::Tensor> list;
      list.reserve(argument.parts.size());
      for (const Argument& part : argument.parts) list.push_back(tensor(part, frame));
      return list;
    }
    case Source::OptionalList: {
      c10::List<std::optional<at::Tensor>> list;
      for (const Argument& part : argument.parts) {
        c10::IValue one = value(part, frame);
        list.push_back(one.isNone() ? std::nullopt : std::optional<at::Tensor>(one.toTensor()));
      }
      return list;
    }
  }
  return {};
}

}  // namespace gt
