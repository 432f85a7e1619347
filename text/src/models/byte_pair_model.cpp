// Short words are merged by looking for the lowest rank again after every merge, long ones with a queue of candidates:
// n log n steps for n bytes of a window.
#include "models/byte_pair_model.h"

#include <algorithm>
#include <atomic>
#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "models/byte_alphabet.h"
#include "rf/io/error.h"

namespace rf::text {
namespace {

constexpr size_t kShortWord = 64;  // bytes; from here on the queue is faster

std::atomic<uint64_t> g_pair_models{0};

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t slot_of(uint64_t key, size_t slots) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio
  return static_cast<size_t>(key * kMultiplier >> 20) & (slots - 1);
}

// Control characters except white space, and bytes that do not begin any character in use; published vocabularies may
// lack such bytes.
bool may_lack(uint8_t byte) {
  if (byte < 0x80) return (byte < ' ' && (byte < '\t' || byte > '\r')) || byte == 0x7F;
  return byte == 0xC0 || byte == 0xC1 || byte == 0xF1 || byte == 0xF2 || byte > 0xF4;
}

}  // namespace

BytePairModel::BytePairModel(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                             const TokenizerOptions& options)
    : characters_(options.pipeline == Pipeline::kByteFallbackBpe), serial_(++g_pair_models) {
  if (characters_) {
    read_characters(vocabulary, options.byte_fallback.byte_fallback);
  } else {
    read_bytes(vocabulary);
  }
  read_merges(vocabulary, merges, characters_ && options.byte_fallback.fuse_unk);
  compute_wholes(vocabulary, !characters_ && options.byte_level.ignore_merges);
}

void BytePairModel::read_characters(const Vocabulary& vocabulary, bool byte_fallback) {
  for (int64_t id = 0; id < vocabulary.model_size(); ++id) {
    std::string_view token = vocabulary.token(id);
    if (token.empty()) continue;
    const char32_t first = take_utf8(token).code;
    if (token.empty()) character_ids_[first] = static_cast<int32_t>(id);
  }
  if (!byte_fallback) {
    vocabulary.require({SpecialRole::kUnk}, "byte-fallback-bpe");
    unknown_ = vocabulary.special().unk;
    return;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string token = fmt::format("<0x{:02X}>", byte);
    byte_ids_[byte] = vocabulary.find(token);
    if (byte_ids_[byte] < 0 || byte_ids_[byte] >= vocabulary.model_size()) {
      fail("byte-fallback-bpe", "the vocabulary must have the 256 tokens <0x00> to <0xFF>, got none for {}", token);
    }
  }
}

void BytePairModel::read_bytes(const Vocabulary& vocabulary) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    const std::string letter = letters_of({&character, 1});
    byte_ids_[byte] = vocabulary.find(letter);
    if (byte_ids_[byte] >= 0 && byte_ids_[byte] < vocabulary.model_size()) continue;
    if (!may_lack(static_cast<uint8_t>(byte))) {
      fail(
          "byte-level-bpe",
          "the vocabulary must have a token for each of the 256 bytes but those of control characters and of none, got "
          "none for {} (\"{}\")",
          byte, letter);
    }
    byte_ids_[byte] = -1;
  }
}

void BytePairModel::read_merges(const Vocabulary& vocabulary, const std::vector<Merge>& merges, bool fuses_unknown) {
  pairs_.assign(std::bit_ceil(2 * merges.size() + 2), Pair{kNoPair, kNoRank, -1});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const int32_t ids[] = {vocabulary.find(left), vocabulary.find(right), vocabulary.find(left + right)};
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocabulary.model_size() || (fuses_unknown && id == unknown_)) {
        fail(characters_ ? "byte-fallback-bpe" : "byte-level-bpe",
             "a merge must join two tokens of the vocabulary into a third, got \"{} {}\"", left, right);
      }
    }
    const std::string joined = left + right;
    for (size_t at = joined.find(kSpaceMarker, 1); at != std::string::npos; at = joined.find(kSpaceMarker, at + 1)) {
      const bool after_marker = std::string_view(joined).substr(0, at).ends_with(kSpaceMarker);
      joins_no_markers_ = joins_no_markers_ && after_marker;
    }
    Pair& pair = const_cast<Pair&>(find_pair(ids[0], ids[1]));
    pair = {key_of(ids[0], ids[1]), static_cast<uint32_t>(rank), ids[2]};  // the last entry of a pair counts
  }
}

void BytePairModel::compute_wholes(const Vocabulary& vocabulary, bool ignore_merges) {
  const auto tokens = static_cast<size_t>(vocabulary.model_size());
  wholes_.assign(std::bit_ceil(2 * tokens + 2), Whole{0, 0, 0, -1});
  Workspace workspace;
  for (size_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<int32_t>(i);
    std::string word;
    if (characters_) {
      word = vocabulary.token(id);
    } else if (!append_bytes(vocabulary.token(id), word)) {
      continue;
    }
    if (word.empty()) continue;
    if (!ignore_merges) {
      merge(word, workspace);
      if (workspace.symbols[0].end != word.size()) continue;
      if (workspace.symbols[0].id != id) continue;
    }
    const uint64_t hash = hash_of(word);
    Whole& whole = const_cast<Whole&>(find_whole(word, hash));
    whole = {hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(word.size()), id};
    bytes_ += word;
  }
}

const BytePairModel::Whole& BytePairModel::find_whole(std::string_view word, uint64_t hash) const {
  const size_t mask = wholes_.size() - 1;
  for (size_t slot = hash >> 8 & mask;; slot = (slot + 1) & mask) {
    const Whole& whole = wholes_[slot];
    if (whole.hash == 0) return whole;
    if (whole.hash == hash && std::string_view(bytes_).substr(whole.begin, whole.length) == word) return whole;
  }
}

const BytePairModel::Pair& BytePairModel::find_pair(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key, pairs_.size());
  while (pairs_[slot].key != key && pairs_[slot].key != kNoPair) slot = (slot + 1) & (pairs_.size() - 1);
  return pairs_[slot];
}

uint64_t BytePairModel::hash_of(std::string_view word) {
  return XXH3_64bits(word.data(), word.size()) | 1;  // never 0, which marks an empty slot
}

std::span<const BytePairModel::Piece> BytePairModel::cut_short(std::string_view word, uint64_t hash,
                                                               Workspace& workspace) const {
  if (workspace.serial != serial_) {
    workspace.words.assign(Workspace::kWords, {});
    workspace.serial = serial_;
  }
  Workspace::KnownWord& known = workspace.words[hash >> 40 & (Workspace::kWords - 1)];
  if (known.size != word.size() || std::string_view(known.text.data(), known.size) != word) {
    merge_window(word, workspace.pieces, workspace);
    if (workspace.pieces.size() > Workspace::kPieces) return workspace.pieces;
    known.size = static_cast<uint8_t>(word.size());
    known.count = static_cast<uint8_t>(workspace.pieces.size());
    std::ranges::copy(word, known.text.begin());
    std::ranges::copy(workspace.pieces, known.pieces.begin());
  }
  return {known.pieces.data(), known.count};
}

void BytePairModel::merge_window(std::string_view window, std::vector<Piece>& pieces, Workspace& workspace) const {
  merge(window, workspace);
  pieces.clear();
  for (const Workspace::Symbol& symbol : workspace.symbols) {
    if (symbol.end != symbol.begin) pieces.push_back({symbol.id, symbol.end - symbol.begin});
  }
}

size_t BytePairModel::next_window(std::string_view word, size_t& begin, size_t& length, Workspace& workspace) const {
  std::vector<Piece>&pieces = workspace.pieces, &ahead = workspace.ahead;
  size_t i = pieces.size(), at = begin + length;  // of the first piece of the next window
  const auto is_inside = [&](size_t place) {
    return characters_ && place < word.size() && !begins_character(word[place]);
  };
  while (i > 0 && (at + kOverlap > begin + length || is_inside(at))) at -= pieces[--i].length;
  const size_t end = window_end(word, begin + length + kWindow);
  if (at > begin) {
    size_t j = 0, ahead_at = at;
    const size_t window = at;
    merge_window(word.substr(window, end - window), ahead, workspace);
    while (i < pieces.size() && j < ahead.size()) {
      if (at == ahead_at && pieces[i] == ahead[j] && (j + 1 < ahead.size() || end == word.size()) &&
          !is_inside(at + pieces[i].length)) {
        begin = at + pieces[i].length;
        length = end - begin;
        ahead.erase(ahead.begin(), ahead.begin() + static_cast<ptrdiff_t>(j + 1));
        return i + 1;
      }
      const bool behind = at <= ahead_at, ahead_behind = ahead_at <= at;
      if (behind) at += pieces[i++].length;
      if (ahead_behind) ahead_at += ahead[j++].length;
    }
  }
  length = window_end(word, begin + 2 * length) - begin;
  merge_window(word.substr(begin, length), pieces, workspace);
  return 0;
}

// Leaves the word's symbols in order; a symbol that was merged into the previous one stays empty (begin == end).
void BytePairModel::merge(std::string_view word, Workspace& workspace) const {
  std::vector<Workspace::Symbol>& symbols = workspace.symbols;
  symbols.clear();
  if (characters_) {
    append_characters(word, symbols);
  } else {
    for (uint32_t i = 0; i < word.size(); ++i) {
      symbols.push_back({byte_ids_[static_cast<uint8_t>(word[i])], kNoRank, i, i + 1, 0, 0});
    }
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = static_cast<int32_t>(i) + 1;
  }
  if (word.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(workspace);
  }
}

void BytePairModel::append_characters(std::string_view word, std::vector<Workspace::Symbol>& symbols) const {
  for (uint32_t at = 0; at < word.size();) {
    const Decoded decoded = decode_utf8(word.substr(at));
    const uint32_t end = at + static_cast<uint32_t>(decoded.length);
    const auto found = character_ids_.find(decoded.code);
    if (found != character_ids_.end() || unknown_ >= 0) {
      symbols.push_back({found == character_ids_.end() ? unknown_ : found->second, kNoRank, at, end, 0, 0});
    } else {
      for (uint32_t i = at; i < end; ++i) {
        symbols.push_back({byte_ids_[static_cast<uint8_t>(word[i])], kNoRank, i, i + 1, 0, 0});
      }
    }
    at = end;
  }
}

void BytePairModel::merge_short(std::vector<Workspace::Symbol>& symbols) const {
  const auto rank_at = [this, &symbols](size_t i) {
    return i + 1 < symbols.size() ? find_pair(symbols[i].id, symbols[i + 1].id).rank : kNoRank;
  };
  for (size_t i = 0; i < symbols.size(); ++i) symbols[i].rank = rank_at(i);
  for (;;) {
    const auto best = std::ranges::min_element(symbols, {}, &Workspace::Symbol::rank);
    if (best->rank == kNoRank) return;
    const auto next = best + 1;
    best->id = find_pair(best->id, next->id).id;
    best->end = next->end;
    symbols.erase(next);
    const auto i = static_cast<size_t>(best - symbols.begin());
    symbols[i].rank = rank_at(i);
    if (i > 0) symbols[i - 1].rank = rank_at(i - 1);
  }
}

void BytePairModel::push(Workspace& workspace, int32_t at) const {
  const std::vector<Workspace::Symbol>& symbols = workspace.symbols;
  if (at < 0 || symbols[static_cast<size_t>(at)].next >= static_cast<int32_t>(symbols.size())) return;
  const Workspace::Symbol& symbol = symbols[static_cast<size_t>(at)];
  const int32_t right = symbols[static_cast<size_t>(symbol.next)].id;
  const Pair& pair = find_pair(symbol.id, right);
  if (pair.rank == kNoRank) return;
  workspace.queue.push_back({pair.rank, at, symbol.id, right});
  std::ranges::push_heap(workspace.queue, std::greater{},
                         [](const Workspace::Candidate& c) { return std::pair(c.rank, c.at); });
}

void BytePairModel::merge_long(Workspace& workspace) const {
  std::vector<Workspace::Symbol>& symbols = workspace.symbols;
  const auto size = static_cast<int32_t>(symbols.size());
  workspace.queue.clear();
  for (int32_t at = 0; at + 1 < size; ++at) push(workspace, at);
  while (!workspace.queue.empty()) {
    std::ranges::pop_heap(workspace.queue, std::greater{},
                          [](const Workspace::Candidate& c) { return std::pair(c.rank, c.at); });
    const Workspace::Candidate top = workspace.queue.back();
    workspace.queue.pop_back();
    Workspace::Symbol& left = symbols[static_cast<size_t>(top.at)];
    if (left.begin == left.end || left.id != top.left || left.next >= size) continue;  // merged since
    Workspace::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != top.right) continue;
    left.id = find_pair(top.left, top.right).id;
    left.end = right.end;
    left.next = right.next;
    right.begin = right.end;
    if (left.next < size) symbols[static_cast<size_t>(left.next)].previous = top.at;
    push(workspace, left.previous);
    push(workspace, top.at);
  }
}

}  // namespace rf::text
