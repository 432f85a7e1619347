#include "models/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "rf/io/error.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

constexpr double kUnknownPenalty = 10;
std::atomic<uint64_t> g_models{0};

}  // namespace

UnigramModel::UnigramModel(const Vocabulary& vocabulary, const UnigramOptions& options)
    : trie_(vocabulary),
      normalizers_(options.normalizers),
      scores_(options.scores),
      unk_(options.unk),
      serial_(++g_models) {
  const auto size = static_cast<size_t>(vocabulary.model_size());
  if (scores_.size() != size) {
    fail("unigram", "every token must have a score, got {} for {} tokens", scores_.size(), size);
  }
  if (unk_ < 0 || static_cast<size_t>(unk_) >= size) {
    fail("unigram", "unk_id must be one of the {} tokens, got {}", size, unk_);
  }
  const auto bad = std::ranges::find_if_not(scores_, [](double score) { return std::isfinite(score); });
  if (bad != scores_.end()) {
    fail("unigram", "scores must be finite, got {} for \"{}\"", *bad, vocabulary.token(bad - scores_.begin()));
  }
  unk_score_ = std::ranges::min(scores_) - kUnknownPenalty;
  has_bytes_ = options.byte_fallback;
  for (size_t byte = 0; byte < bytes_.size(); ++byte) bytes_[byte] = trie_.find(fmt::format("<0x{:02X}>", byte));
}

std::span<const UnigramModel::Piece> UnigramModel::cut(std::string_view word, Workspace& workspace) const {
  if (workspace.serial_ != serial_) {
    for (Workspace::CachedWord& known : workspace.words_) known.size = 0;
    workspace.serial_ = serial_;
  }
  if (word.size() > Workspace::kWordBytes) {
    find_best(word, workspace);
    return workspace.pieces_;
  }
  const size_t hash = std::hash<std::string_view>{}(word);
  Workspace::CachedWord& known = workspace.words_[hash % Workspace::kWords];
  if (known.size != word.size() || !std::equal(word.begin(), word.end(), known.text.begin())) {
    find_best(word, workspace);
    if (workspace.pieces_.size() > Workspace::kPieces) return workspace.pieces_;
    known.size = static_cast<uint8_t>(word.size());
    known.count = static_cast<uint8_t>(workspace.pieces_.size());
    std::ranges::copy(word, known.text.begin());
    std::ranges::copy(workspace.pieces_, known.pieces.begin());
  }
  return {known.pieces.data(), known.count};
}

void UnigramModel::find_best(std::string_view word, Workspace& workspace) const {
  std::vector<Workspace::Node>& nodes = workspace.nodes_;
  nodes.assign(word.size() + 1, {0, 0, kNone});
  const auto offer = [&](size_t end, double score, size_t begin, int32_t id) {
    Workspace::Node& node = nodes[end];
    if (node.id == kNone || score > node.score) node = {score, static_cast<uint32_t>(begin), id};
  };
  for (size_t at = 0; at < word.size();) {
    const double score = nodes[at].score;
    const auto length = static_cast<size_t>(decode_utf8(word.substr(at)).length);
    bool is_known = false;
    trie_.for_each_prefix(word.substr(at), [&](int32_t id, size_t bytes) {
      offer(at + bytes, scores_[static_cast<size_t>(id)] + score, at, id);
      is_known = is_known || bytes == length;
    });
    if (!is_known) offer(at + length, unk_score_ + score, at, unk_);
    at += length;
  }
  std::vector<Piece>& path = workspace.pieces_;
  path.clear();
  std::vector<Piece> unknown;
  bool simple = true;
  for (auto end = static_cast<uint32_t>(word.size()); end > 0;) {
    const Workspace::Node& node = nodes[end];
    if (node.id == unk_ && !path.empty() && path.back().id == unk_) {
      path.back().begin = node.begin;
    } else {
      path.push_back({node.id, node.begin, end});
    }
    simple = simple && node.id != unk_;
    end = node.begin;
  }
  std::ranges::reverse(path);
  if (simple) return;
  unknown.swap(path);
  for (const Piece& piece : unknown) append(word, piece, path);
}

// The text of unknown characters may be a token, or its bytes are.
void UnigramModel::append(std::string_view word, Piece piece, std::vector<Piece>& pieces) const {
  if (piece.id == unk_) {
    const std::string_view text = word.substr(piece.begin, piece.end - piece.begin);
    const int32_t known = trie_.find(text);
    const auto token = [this](char byte) { return bytes_[static_cast<uint8_t>(byte)]; };
    if (known >= 0) {
      piece.id = known;
    } else if (has_bytes_ && std::ranges::all_of(text, [&](char byte) { return token(byte) >= 0; })) {
      for (const char byte : text) pieces.push_back({token(byte), piece.begin, piece.end});
      return;
    }
  }
  pieces.push_back(piece);
}

}  // namespace rf::text
