// Runs one program for a group of members: updates of an optimizer's parameters.
#include <c10/util/Exception.h>

#include "frame.h"

namespace gt {

namespace {

// True if a call takes lists of tensors, such as an update's parameters.
bool takes_lists(const Call& call) {
  for (const Argument& argument : call.arguments) {
    if (argument.source == Source::List) return true;
  }
  return false;
}

// True if a call computes the same for all members of a group: its arguments are numbers alone. A
// kernel of GT's gets tensors.
bool is_shared(const Call& call, const Frame& frame) {
  if (call.kernel.entry != nullptr) return false;
  for (const Argument& argument : call.arguments) {
    bool is_number =
        argument.source == Source::Operand && frame.operands[argument.index].kind != Kind::Tensor;
    if (!is_number && argument.source != Source::Constant) return false;
  }
  return true;
}

// Runs one call for all members: their lists are joined, other arguments are the first member's.
void execute_lists(const Call& call, std::vector<Frame>& frames) {
  TORCH_CHECK(call.results == 0, "a list's results are not told apart");
  torch::jit::Stack stack;
  for (const Argument& argument : call.arguments) {
    if (argument.source != Source::List) {
      stack.push_back(value(argument, frames.front()));
      continue;
    }
    c10::List<at::Tensor> list;
    list.reserve(argument.parts.size() * frames.size());
    for (const Frame& frame : frames) {
      for (const Argument& part : argument.parts) list.push_back(tensor(part, frame));
    }
    stack.push_back(std::move(list));
  }
  call.op->callBoxed(stack);
}

}  // namespace

int run_group(const Program& program, const Operand* operands, size_t width, size_t members,
              void** results) {
  if (!program.guards.empty()) return FELL_THROUGH;
  std::vector<std::vector<c10::IValue>> temporaries(members);
  std::vector<Frame> frames;
  frames.reserve(members);
  for (size_t i = 0; i < members; ++i) frames.push_back({operands + i * width, temporaries[i]});
  for (const Call& call : program.calls) {
    if (takes_lists(call)) {
      execute_lists(call, frames);
    } else if (is_shared(call, frames.front())) {
      if (!execute(call, frames.front())) return FELL_THROUGH;
      const std::vector<c10::IValue>& made = temporaries.front();
      for (size_t i = 1; i < members; ++i)
        temporaries[i].insert(temporaries[i].end(), made.end() - call.results, made.end());
    } else {
      for (Frame& frame : frames) {
        if (!execute(call, frame)) return FELL_THROUGH;
      }
    }
  }
  for (const Frame& frame : frames) {
    for (const Argument& result : program.results)
      *results++ = tensor(result, frame).unsafeReleaseTensorImpl();
  }
  return static_cast<int>(program.results.size());
}

}  // namespace gt
