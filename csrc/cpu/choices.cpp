#include "cpu/choices.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "core/message.h"
#include "core/pool.h"

namespace gt {
namespace {

// Elements in one task, which takes about 5 us.
constexpr std::size_t kTogether = 16 * 1024;

const char* moved(const void* data, std::size_t bytes) {
  return static_cast<const char*>(data) + bytes;
}

}  // namespace

void choose(const Choice& choice, int threads) {
  const std::size_t bytes = choice.element_bytes;
  if (!std::has_single_bit(bytes) || bytes > 8) {
    throw std::invalid_argument(message("where: elements of ", bytes, " bytes"));
  }
  const ChoiceLoop loop = array_path().choices[std::countr_zero(bytes)];
  const std::size_t tasks = (choice.count + kTogether - 1) / kTogether;
  run_tasks(static_cast<std::int64_t>(tasks), threads, [&](std::int64_t task) {
    std::size_t begin = static_cast<std::size_t>(task) * kTogether;
    const std::size_t end = std::min(begin + kTogether, choice.count);
    while (begin < end) {
      const std::size_t place = begin % choice.period;
      const std::size_t count = std::min(end - begin, choice.period - place);
      ChoiceSides sides = choice.sides;
      sides.condition += place;
      sides.x = moved(sides.x, sides.x_is_one ? 0 : begin * bytes);
      sides.y = moved(sides.y, sides.y_is_one ? 0 : begin * bytes);
      loop(sides, static_cast<char*>(choice.out) + begin * bytes, count);
      begin += count;
    }
  });
}

}  // namespace gt
