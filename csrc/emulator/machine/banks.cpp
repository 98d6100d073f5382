#include "emulator/machine/banks.h"

#include <algorithm>
#include <set>

namespace gt::emulator {
namespace {

constexpr std::size_t kBanks = 32;
constexpr std::size_t kBankBytes = 4;

}  // namespace

std::uint64_t bank_conflicts(const std::vector<std::pair<unsigned, std::uintptr_t>>& lanes,
                             std::size_t bytes) {
  // Accesses of 8 bytes go by half warps, those of 16 bytes by quarter warps.
  const std::size_t lanes_at_once = std::min<std::size_t>(32, 32 * kBankBytes / bytes);
  std::uint64_t conflicts = 0;
  for (std::size_t first = 0; first < 32; first += lanes_at_once) {
    std::array<std::set<std::uintptr_t>, kBanks> words;
    for (const auto& [lane, address] : lanes) {
      if (lane < first || lane >= first + lanes_at_once) {
        continue;
      }
      for (std::uintptr_t at = address; at < address + bytes; at += kBankBytes) {
        words[at / kBankBytes % kBanks].insert(at / kBankBytes);
      }
    }
    std::size_t deepest = 1;
    for (const std::set<std::uintptr_t>& bank : words) {
      deepest = std::max(deepest, bank.size());
    }
    conflicts += deepest - 1;
  }
  return conflicts;
}

void WarpBanks::add(unsigned lane, std::uintptr_t place, std::uintptr_t address,
                    std::size_t bytes) {
  auto& visits = visits_.try_emplace(place).first->second;
  Access& access = accesses_[{place, visits[lane]++}];
  access.bytes = bytes;
  access.lanes.emplace_back(lane, address);
}

void WarpBanks::flush(std::map<std::uintptr_t, std::uint64_t>& conflicts) {
  for (const auto& [key, access] : accesses_) {
    if (const std::uint64_t found = bank_conflicts(access.lanes, access.bytes)) {
      conflicts[key.first] += found;
    }
  }
  accesses_.clear();
  visits_.clear();
}

}  // namespace gt::emulator
