// The tokens that may follow, so that a text stays the beginning of one that an automaton reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "byte_automaton.h"
#include "rf/text/tokenizer.h"

namespace rf::tasks {

// The tokens of a vocabulary by their bytes, as the depth-first walk of a trie.
class TokenTrie {
 public:
  explicit TokenTrie(const text::Tokenizer& tokenizer);

  int64_t vocab_size() const { return std::ssize(begins_) - 1; }
  std::string_view bytes(int32_t id) const {  // empty: none
    const auto at = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(begins_[at], begins_[at + 1] - begins_[at]);
  }
  struct Entry {
    int32_t id;
    uint32_t shared;  // first bytes that it has in common with the entry before
  };
  std::span<const Entry> entries() const { return entries_; }  // ascending by bytes

 private:
  std::string bytes_;           // of all tokens
  std::vector<size_t> begins_;  // [vocab_size + 1]
  std::vector<Entry> entries_;
};

class TokenMask {
 public:
  // stop_ids: allowed where a text may end. The trie must outlive it.
  TokenMask(const TokenTrie& trie, std::shared_ptr<const ByteAutomaton> automaton, std::vector<int32_t> stop_ids);

  // As GenerationOptions::allowed. Throws ArgumentError where no token is.
  std::span<const uint64_t> allowed(std::span<const int32_t> added);
  // Whether the tokens are a text that nothing can follow.
  bool is_whole(std::span<const int32_t> added);

 private:
  int32_t state_after(std::span<const int32_t> added);
  std::vector<uint64_t> mask_of(int32_t state);
  void bound_memory();

  const TokenTrie& trie_;
  std::shared_ptr<const ByteAutomaton> automaton_;
  std::vector<int32_t> stop_ids_;
  AutomatonWalk walk_;
  std::unordered_map<int32_t, std::vector<uint64_t>> masks_;  // by states
};

}  // namespace rf::tasks
