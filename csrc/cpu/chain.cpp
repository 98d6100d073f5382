#include "cpu/chain.h"

#include <algorithm>
#include <stdexcept>

#include "core/message.h"
#include "core/pool.h"

namespace gt {
namespace {

// A block of the result stays in the first cache from step to step.
constexpr std::int64_t kBlock = 2048;
// Elements of one task: a few us for each step.
constexpr std::int64_t kTogether = 16 * 1024;

std::int64_t elements(const TensorView& tensor) {
  std::int64_t count = 1;
  for (int dim = 0; dim < tensor.rank; ++dim) {
    count *= tensor.shape[dim];
  }
  return count;
}

bool is_contiguous(const TensorView& tensor) {
  std::int64_t expected = 1;
  for (int dim = tensor.rank - 1; dim >= 0; --dim) {
    if (tensor.shape[dim] != 1 && tensor.strides[dim] != expected) {
      return false;
    }
    expected *= tensor.shape[dim];
  }
  return true;
}

// How a tensor is repeated over the result.
enum class Form { kOther, kSame, kOne, kRow, kColumn };

struct Repeated {
  Form form;
  std::int64_t columns;  // of a row, or those that share a number
};

Repeated repeated(const TensorView& tensor, const TensorView& out) {
  if (tensor.element != Element::kFloat32 || tensor.rank > out.rank || !is_contiguous(tensor)) {
    return {Form::kOther, 0};
  }
  // From the last dimension on: those that the tensor has and those that it is repeated over.
  bool has_last = false;
  bool had = false;
  int runs = 0;
  std::int64_t columns = 1;
  for (int dim = 1; dim <= out.rank; ++dim) {
    const std::int64_t size = out.size(-dim);
    const std::int64_t own = dim <= tensor.rank ? tensor.size(-dim) : 1;
    if (own != size && own != 1) {
      return {Form::kOther, 0};
    }
    if (size == 1) {
      continue;
    }
    const bool has = own == size;
    if (runs == 0 || has != had) {
      ++runs;
    }
    if (runs == 1) {
      has_last = has;
      columns *= size;
    }
    had = has;
  }
  if (runs > 2) {
    return {Form::kOther, 0};
  }
  if (runs < 2) {
    return {runs == 0 || has_last ? Form::kSame : Form::kOne, 0};
  }
  return {has_last ? Form::kRow : Form::kColumn, columns};
}

// Whether a step's operands fit, with rows of so many columns, or of any where that is 0.
bool fits(const TensorView& out, const ChainStep& step, bool is_first, std::int64_t& columns) {
  for (int side = 0; side < operands_of(step.op); ++side) {
    const ChainOperand& operand = step.operands[side];
    if (operand.kind == ChainOperand::Kind::kResult && is_first) {
      return false;
    }
    if (operand.kind != ChainOperand::Kind::kTensor) {
      continue;
    }
    const Repeated found = repeated(operand.tensor, out);
    if (found.form == Form::kOther ||
        (found.columns != 0 && columns != 0 && found.columns != columns)) {
      return false;
    }
    columns = found.columns != 0 ? found.columns : columns;
  }
  return true;
}

// An operand as the loops take it: where it is in row `row` from column `column` on.
struct Side {
  const float* data = nullptr;  // nullptr: the result
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;

  ChainSide at(std::int64_t row, std::int64_t column, const float* result) const {
    if (data == nullptr) {
      return {result, false};
    }
    return {data + row * row_step + column * column_step, column_step == 0};
  }
};

struct Step {
  ChainLoop loop;
  Side sides[2];
};

Side side_of(const ChainOperand& operand, const TensorView& out, std::int64_t columns) {
  if (operand.kind == ChainOperand::Kind::kResult) {
    return {};
  }
  if (operand.kind == ChainOperand::Kind::kNumber) {
    return {&operand.number, 0, 0};
  }
  const auto* data = static_cast<const float*>(operand.tensor.data);
  switch (repeated(operand.tensor, out).form) {
    case Form::kSame:
      return {data, columns, 1};
    case Form::kRow:
      return {data, 0, 1};
    case Form::kColumn:
      return {data, 1, 0};
    case Form::kOne:
    case Form::kOther:
      break;
  }
  return {data, 0, 0};
}

}  // namespace

int fitting_chain(const TensorView& out, const ChainStep* steps, int count) {
  if (out.element != Element::kFloat32 || out.is_empty() || !is_contiguous(out)) {
    return 0;
  }
  std::int64_t columns = 0;
  int step = 0;
  while (step < std::min(count, kChainSteps) && fits(out, steps[step], step == 0, columns)) {
    ++step;
  }
  return step;
}

void chain(const TensorView& out, const ChainStep* steps, int count, int threads) {
  if (count < 1 || fitting_chain(out, steps, count) < count) {
    throw std::invalid_argument(
        message("chain: of ", count, " steps ", fitting_chain(out, steps, count), " fit"));
  }
  std::int64_t columns = 0;
  for (int at = 0; at < count; ++at) {
    fits(out, steps[at], at == 0, columns);
  }
  const std::int64_t all = elements(out);
  columns = columns == 0 ? all : columns;
  Step made[kChainSteps];
  for (int at = 0; at < count; ++at) {
    made[at].loop = array_path().chain[static_cast<std::size_t>(steps[at].op)];
    for (int side = 0; side < operands_of(steps[at].op); ++side) {
      made[at].sides[side] = side_of(steps[at].operands[side], out, columns);
    }
  }
  auto* result = static_cast<float*>(out.data);
  const auto run = [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; column += kBlock) {
      float* block = result + row * columns + column;
      const auto width = static_cast<std::size_t>(std::min(kBlock, end - column));
      for (int at = 0; at < count; ++at) {
        const Step& step = made[at];
        step.loop(step.sides[0].at(row, column, block), step.sides[1].at(row, column, block), block,
                  width);
      }
    }
  };
  if (columns >= kTogether) {
    const std::int64_t parts = (columns + kTogether - 1) / kTogether;
    run_tasks(all / columns * parts, threads, [&](std::int64_t task) {
      const std::int64_t begin = task % parts * kTogether;
      run(task / parts, begin, std::min(begin + kTogether, columns));
    });
    return;
  }
  const std::int64_t rows = all / columns;
  const std::int64_t together = kTogether / columns;
  run_tasks((rows + together - 1) / together, threads, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * together, rows);
    for (std::int64_t row = task * together; row < end; ++row) {
      run(row, 0, columns);
    }
  });
}

}  // namespace gt
