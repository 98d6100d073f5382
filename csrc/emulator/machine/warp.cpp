// Instructions that the lanes of a warp execute together: PTX ISA 9.7.9.6 (shfl.sync), 9.7.13.4
// (bar.warp.sync), 9.7.13.10 (vote).
#include <cstring>

#include "emulator/machine/instructions.h"
#include "emulator/machine/machine.h"

namespace gt::emulator {
namespace {

WarpValues meet(const char* instruction, unsigned mask, std::uint64_t value, bool orders_memory) {
  Thread& thread = *current;
  const unsigned bit = 1U << thread.lane();
  if ((mask & bit) == 0) {
    fail(FaultKind::kMisuse,
         message(instruction, ": the mask does not name the calling lane ", thread.lane()));
  }
  auto& meetings = thread.block->meetings[thread.rank / kWarpThreads];
  Rendezvous& meeting = meetings[mask];
  if (meeting.arrived != 0 && std::strcmp(meeting.instruction, instruction) != 0) {
    fail(FaultKind::kMisuse,
         message(instruction, ": other lanes of the mask are at ", meeting.instruction));
  }
  meeting.instruction = instruction;
  meeting.arrived |= bit;
  meeting.values[thread.lane()] = value;
  meeting.clock.join(thread.clock);
  WarpValues result{};
  if (meeting.arrived != mask) {
    meeting.waiting.emplace_back(&thread, &result);
    machine->wait([=] { return message(instruction, " of the lanes of mask 0x", std::hex, mask); });
    return result;
  }
  const Rendezvous complete = std::move(meeting);
  meetings.erase(mask);
  for (const auto& [waiting, values] : complete.waiting) {
    *values = complete.values;
    if (orders_memory) {
      waiting->clock.join(complete.clock);
      waiting->clock.tick(waiting->number);
    }
    machine->wake(*waiting);
  }
  if (orders_memory) {
    thread.clock.join(complete.clock);
    thread.clock.tick(thread.number);
  }
  return complete.values;
}

// The source lane, or the lane itself where the source would leave the segment.
unsigned source_lane(Shuffle kind, unsigned lane, unsigned operand, unsigned width) {
  const unsigned first = lane / width * width;
  const unsigned last = first + width - 1;
  switch (kind) {
    case Shuffle::kUp:
      return lane >= first + operand ? lane - operand : lane;
    case Shuffle::kDown:
      return lane + operand <= last ? lane + operand : lane;
    case Shuffle::kButterfly:
      return (lane ^ operand) <= last ? lane ^ operand : lane;
    case Shuffle::kIndex:
      return first + operand % width;
  }
  __builtin_unreachable();
}

}  // namespace

WarpValues warp_exchange(const char* instruction, unsigned mask, std::uint64_t value) {
  return meet(instruction, mask, value, false);
}

void sync_warp(unsigned mask) { meet("__syncwarp", mask, 0, true); }

unsigned lane_index() { return current->lane(); }

std::uint64_t shuffle(Shuffle kind, unsigned mask, std::uint64_t value, unsigned operand,
                      unsigned width) {
  if (width == 0 || width > kWarpThreads || (width & (width - 1)) != 0) {
    fail(FaultKind::kMisuse, message("shfl.sync: width ", width, " is no power of two up to 32"));
  }
  const unsigned source = source_lane(kind, current->lane(), operand % kWarpThreads, width);
  const WarpValues values = warp_exchange("shfl.sync", mask, value);
  if ((mask >> source & 1U) == 0) {
    fail(FaultKind::kMisuse,
         message("shfl.sync: reads lane ", source, ", which is not in mask 0x", std::hex, mask));
  }
  return values[source];
}

}  // namespace gt::emulator
