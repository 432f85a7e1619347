// vocab.txt: one token a line, id = line number from 0. As in `transformers`, a line ends with \n, \r\n or \r and
// nothing else, and an empty line is an empty token that keeps its number (no text ever gives it).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rf::text {

// Ids of the special tokens; every one must be in the vocabulary.
struct SpecialIds {
  int32_t pad, unk, cls, sep, mask;
};

class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> tokens);  // throws Error: duplicate, special missing, no UTF-8
  static Vocabulary load(const std::string& path);
  void save(const std::string& path) const;  // atomic

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int32_t find(std::string_view token) const;  // -1 when absent
  const std::string& token(int64_t id) const;  // throws Error when out of range
  const SpecialIds& special() const { return special_; }
  // 128-bit hash (XXH3) of the tokens in order, as 32 hexadecimal digits; token shards carry it.
  std::string hash() const;

 private:
  Vocabulary(std::vector<std::string> tokens, std::string_view where);  // `where` begins the error messages

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  SpecialIds special_{};
};

}  // namespace rf::text
