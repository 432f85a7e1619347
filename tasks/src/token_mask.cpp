// The tokens that may follow (see the header).
#include "token_mask.h"

#include <algorithm>

#include "rf/io/error.h"

namespace rf::tasks {

TokenTrie::TokenTrie(const text::Tokenizer& tokenizer) : begins_(1, 0) {
  for (int32_t id = 0; id < tokenizer.vocabulary().size(); ++id) {
    bytes_ += tokenizer.bytes_of(id).value_or("");
    begins_.push_back(bytes_.size());
    if (begins_[static_cast<size_t>(id)] < bytes_.size()) entries_.push_back({id, 0});
  }
  if (entries_.empty()) {
    fail<ArgumentError>(
        "schema",
        "a model whose texts follow a schema must have a tokenizer of bytes or of SentencePiece, got one "
        "of word pieces");
  }
  std::ranges::sort(entries_, [this](const Entry& a, const Entry& b) { return bytes(a.id) < bytes(b.id); });
  for (size_t i = 1; i < entries_.size(); ++i) {
    const std::string_view before = bytes(entries_[i - 1].id), own = bytes(entries_[i].id);
    entries_[i].shared = static_cast<uint32_t>(std::ranges::mismatch(before, own).in1 - before.begin());
  }
}

TokenMask::TokenMask(const TokenTrie& trie, std::shared_ptr<const ByteAutomaton> automaton,
                     std::vector<int32_t> stop_ids)
    : trie_(trie), automaton_(automaton), stop_ids_(std::move(stop_ids)), walk_(std::move(automaton)) {}

int32_t TokenMask::state_after(std::span<const int32_t> added) {
  int32_t state = AutomatonWalk::kBegin;
  for (const int32_t id : added) {
    if (id >= trie_.vocab_size()) return AutomatonWalk::kDead;
    for (const char byte : trie_.bytes(id)) state = walk_.next(state, static_cast<uint8_t>(byte));
  }
  return state;
}

// Walks down the trie: an entry reuses the states after the bytes that it shares with the previous entry.
std::vector<uint64_t> TokenMask::mask_of(int32_t state) {
  constexpr int64_t kBits = 64;
  std::vector<uint64_t> mask(static_cast<size_t>((trie_.vocab_size() + kBits - 1) / kBits));
  const auto allow = [&](int32_t id) { mask[static_cast<size_t>(id / kBits)] |= uint64_t{1} << id % kBits; };
  std::vector<int32_t> states = {state};  // after as many bytes of the entry, up to the first that is dead
  size_t dead = std::string::npos;        // the bytes to there
  for (const TokenTrie::Entry& entry : trie_.entries()) {
    if (entry.shared >= dead) continue;
    dead = std::string::npos;
    const std::string_view bytes = trie_.bytes(entry.id);
    states.resize(std::min<size_t>(entry.shared, states.size() - 1) + 1);
    while (states.size() <= bytes.size()) {
      states.push_back(walk_.next(states.back(), static_cast<uint8_t>(bytes[states.size() - 1])));
      if (states.back() != AutomatonWalk::kDead) continue;
      dead = states.size() - 1;
      break;
    }
    if (dead == std::string::npos) allow(entry.id);
  }
  for (const int32_t id : stop_ids_) {
    if (id >= trie_.vocab_size()) continue;
    mask[static_cast<size_t>(id / kBits)] &= ~(uint64_t{1} << id % kBits);
    if (walk_.accepts(state)) allow(id);
  }
  return mask;
}

// States and masks are made again when they are needed.
void TokenMask::bound_memory() {
  constexpr size_t kMostStates = 16384, kMostMaskBytes = size_t{64} << 20;
  const size_t bytes = masks_.size() * static_cast<size_t>(trie_.vocab_size()) / 8;
  if (walk_.size() <= kMostStates && bytes <= kMostMaskBytes) return;
  walk_ = AutomatonWalk(automaton_);
  masks_.clear();
}

std::span<const uint64_t> TokenMask::allowed(std::span<const int32_t> added) {
  bound_memory();
  const int32_t state = state_after(added);
  const auto [known, is_new] = masks_.try_emplace(state);
  if (is_new) known->second = mask_of(state);
  if (std::ranges::all_of(known->second, [](uint64_t bits) { return bits == 0; })) {
    fail<ArgumentError>("schema", "a schema must have texts that the model's tokens make, got {} that no token {}",
                        added.empty() ? "one" : "a beginning", added.empty() ? "begins" : "continues");
  }
  return known->second;
}

bool TokenMask::is_whole(std::span<const int32_t> added) {
  const int32_t state = state_after(added);
  return walk_.accepts(state) && !walk_.goes_on(state);
}

}  // namespace rf::tasks
