// The tokens of a model by id, and their special roles. vocab.txt has one token per line, id = line number from 0. As
// in Python, a line ends with \n, \r\n or \r and nothing else, and an empty line is an empty token that keeps its
// number (no text ever contains it).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rf::text {

// Ids of the special tokens; -1: absent.
struct SpecialIds {
  int32_t pad = -1, unk = -1, cls = -1, sep = -1, mask = -1, bos = -1, eos = -1;
};

// Their texts; empty: absent. One token may have several roles.
struct SpecialNames {
  std::string pad = "[PAD]", unk = "[UNK]", cls = "[CLS]", sep = "[SEP]", mask = "[MASK]", bos, eos;
};

inline const SpecialNames kNoSpecialNames = {"", "", "", "", "", "", ""};

enum class SpecialRole { kPad, kUnk, kCls, kSep, kMask, kBos, kEos };
inline constexpr std::array<SpecialRole, 7> kSpecialRoles = {SpecialRole::kPad, SpecialRole::kUnk,  SpecialRole::kCls,
                                                             SpecialRole::kSep, SpecialRole::kMask, SpecialRole::kBos,
                                                             SpecialRole::kEos};
std::string_view config_key(SpecialRole role);  // "pad_token", as tokenizer_config.json calls it
std::string& name_of(SpecialNames& names, SpecialRole role);
const std::string& name_of(const SpecialNames& names, SpecialRole role);
int32_t id_of(const SpecialIds& ids, SpecialRole role);

class Vocabulary {
 public:
  // Throws Error for a token that occurs twice or is not UTF-8, and for a special token that is not in `tokens`. The
  // model splits words into the first `model_size` tokens; the others are only matched as added tokens.
  explicit Vocabulary(std::vector<std::string> tokens, SpecialNames names = {}, int64_t model_size = kAll,
                      std::string_view where = "vocabulary");  // `where` is the tag of the messages
  static constexpr int64_t kAll = -1;
  static Vocabulary load(const std::string& path, SpecialNames names = {});  // vocab.txt
  void save(const std::string& path) const;  // the model's tokens, as vocab.txt; atomic; throws Error for a line break

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t model_size() const { return model_size_; }
  int32_t find(std::string_view token) const;  // -1 when absent
  const std::string& token(int64_t id) const;  // throws Error if out of range
  const SpecialIds& special() const { return special_; }
  const SpecialNames& special_names() const { return names_; }
  // Throws Error, with the tag `where`, if the model lacks a token for one of the roles.
  void require(std::initializer_list<SpecialRole> roles, std::string_view where) const;
  // 128-bit hash (XXH3) of the tokens in order, as 32 hexadecimal digits; token shards store it.
  std::string hash() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  int64_t model_size_;
  SpecialNames names_;
  SpecialIds special_;
};

// The lines of a text file, by the rules of vocab.txt.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace rf::text
