// The model file of SentencePiece (spec R-TOK-11): one message of Protocol Buffers (wire format;
// sentencepiece_model.proto).
//
//   ModelProto      1 pieces, 2 trainer_spec, 3 normalizer_spec, 5 denormalizer_spec
//   SentencePiece   1 piece, 2 score, 3 type
//   TrainerSpec     3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback, 40 unk_id
//   NormalizerSpec  2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
//
// Other fields do not change the tokens and are ignored. The class of `transformers` decides on the white space, so a
// file that contradicts it gets a warning.
#include <bit>
#include <unordered_set>

#include "files/sentencepiece_classes.h"
#include "files/tokenizer_files.h"
#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/utf8.h"
#include "rf/io/warning.h"

namespace rf::text {
namespace {

constexpr char kWhere[] = "sentencepiece";
using Prefix = ByteFallbackOptions::Prefix;

// Reads the fields of a message in sequence.
class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  uint32_t field() const { return field_; }
  // Moves to the next field; false at the end.
  bool next() {
    if (bytes_.empty()) return false;
    const uint64_t tag = take_varint();
    field_ = static_cast<uint32_t>(tag >> 3);
    type_ = static_cast<uint8_t>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > kMaxField) refuse("field numbers from 1 to 2^29 - 1", std::to_string(tag >> 3));
    switch (type_) {
      case kVarint: number_ = take_varint(); break;
      case kBytes: value_ = take(take_varint()); break;
      case k64Bits: value_ = take(8); break;
      case k32Bits: value_ = take(4); break;
      default: refuse("fields of the wire types 0, 1, 2 and 5", std::to_string(type_));
    }
    return true;
  }
  // The field, which occurs at most once; its number is below 64.
  WireReader& once() {
    const uint64_t bit = uint64_t{1} << field_;
    if ((seen_ & bit) != 0) refuse("each field at most once", fmt::format("field {} twice", field_));
    seen_ |= bit;
    return *this;
  }
  uint64_t number() {
    expect(kVarint);
    return number_;
  }
  bool boolean() { return number() != 0; }
  std::string_view bytes() {
    expect(kBytes);
    return value_;
  }
  float real() {
    expect(k32Bits);
    uint32_t bits = 0;
    for (size_t i = value_.size(); i-- > 0;) bits = bits << 8 | static_cast<uint8_t>(value_[i]);
    return std::bit_cast<float>(bits);
  }

 private:
  static constexpr uint64_t kMaxField = (uint64_t{1} << 29) - 1;
  enum : uint8_t { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

  [[noreturn]] void refuse(std::string_view rule, std::string_view got) const {
    fail(kWhere, "{}: a model file must be a message of Protocol Buffers with {}, got {}", path_, rule, got);
  }
  void expect(uint8_t type) const {
    if (type_ != type) refuse("the wire types of SentencePiece", fmt::format("{} in field {}", type_, field_));
  }
  uint64_t take_varint() {
    constexpr int kBits = 64;
    uint64_t value = 0;
    for (int shift = 0; shift < kBits; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1).front());
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    refuse("numbers of at most 10 bytes", "a longer one");
  }
  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) refuse("whole fields", fmt::format("{} of {} bytes", bytes_.size(), count));
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  const std::string& path_;
  uint32_t field_ = 0;
  uint8_t type_ = 0;
  uint64_t number_ = 0;
  std::string_view value_;
  uint64_t seen_ = 0;  // bits of fields
};

struct ModelFile {
  SentencePieces pieces;
  uint64_t model_type = 1, unk_id = 0;
  std::string charsmap;
  bool adds_prefix = true;
};
constexpr uint64_t kUnigramType = 1, kBpeType = 2;

class ModelFileReader {
 public:
  explicit ModelFileReader(const std::string& path) : path_(path) {}
  ModelFile read() {
    const std::string bytes = io::read_file(path_);
    WireReader message(bytes, path_);
    while (message.next()) {
      switch (message.field()) {
        case 1: file_.pieces.push_back(read_piece(message.bytes())); break;
        case 2: read_trainer(message.once().bytes()); break;
        case 3: read_normalizer(message.once().bytes()); break;
        case 5: read_denormalizer(message.bytes()); break;
        default: break;
      }
    }
    if (file_.pieces.empty()) fail(kWhere, "{}: a model file must have pieces, got none", path_);
    if (file_.unk_id >= file_.pieces.size()) {
      fail(kWhere, "{}: unk_id must be one of the {} pieces, got {}", path_, file_.pieces.size(),
           static_cast<int64_t>(file_.unk_id));
    }
    return std::move(file_);
  }

 private:
  SentencePiece read_piece(std::string_view bytes) const {
    SentencePiece piece;
    for (WireReader message(bytes, path_); message.next();) {
      if (message.field() > 3) continue;
      switch (message.once().field()) {
        case 1: piece.text = message.bytes(); break;
        case 2: piece.score = message.real(); break;
        default:
          if (message.number() < SentencePiece::kNormal || message.number() > SentencePiece::kByte) {
            fail(kWhere, "{}: the type of a piece must be from 1 to 6, got {}", path_, message.number());
          }
          piece.kind = static_cast<SentencePiece::Kind>(message.number());
      }
    }
    if (piece.text.empty() || !is_utf8(piece.text)) {
      fail(kWhere, "{}: a piece must be a text in UTF-8, got {} bytes in piece {}", path_, piece.text.size(),
           file_.pieces.size());
    }
    return piece;
  }
  void read_trainer(std::string_view bytes) {
    for (WireReader message(bytes, path_); message.next();) {
      switch (message.field()) {
        case 3:
          file_.model_type = message.once().number();
          if (file_.model_type != kUnigramType && file_.model_type != kBpeType) {
            fail(kWhere, "{}: model_type must be 1 (unigram) or 2 (bpe), got {}", path_, file_.model_type);
          }
          break;
        case 24: check(message, "treat_whitespace_as_suffix", false); break;
        case 40: file_.unk_id = message.once().number(); break;
        default: break;
      }
    }
  }
  void read_normalizer(std::string_view bytes) {
    for (WireReader message(bytes, path_); message.next();) {
      switch (message.field()) {
        case 2: file_.charsmap = message.once().bytes(); break;
        case 3: file_.adds_prefix = message.once().boolean(); break;
        case 5: check(message, "escape_whitespaces", true); break;
        default: break;
      }
    }
  }
  void read_denormalizer(std::string_view bytes) const {
    for (WireReader message(bytes, path_); message.next();) {
      if (message.field() != 2 || message.bytes().empty()) continue;
      fail(kWhere, "{}: the denormalizer_spec must have no precompiled_charsmap, got one of {} bytes", path_,
           message.bytes().size());
    }
  }
  void check(WireReader& message, std::string_view key, bool wanted) const {
    if (message.once().boolean() != wanted) fail(kWhere, "{}: {} must be {}, got {}", path_, key, wanted, !wanted);
  }

  const std::string& path_;
  ModelFile file_;
};

// As `generate_merges` of transformers: the pieces in their order, or the highest scores first.
std::vector<Merge> merges_of_pieces(const SentencePieces& pieces, MergeOrder order) {
  std::unordered_set<std::string_view> known;
  for (const SentencePiece& piece : pieces) known.insert(piece.text);
  std::vector<size_t> ranked(pieces.size());
  for (size_t id = 0; id < ranked.size(); ++id) ranked[id] = id;
  const bool by_score = order == MergeOrder::kByScore;
  if (by_score) {
    std::ranges::stable_sort(ranked, [&](size_t a, size_t b) { return pieces[a].score > pieces[b].score; });
  }
  std::vector<Merge> merges;
  for (const size_t id : ranked) {
    const std::string_view whole = pieces[id].text;
    const size_t first = merges.size();
    for (size_t at = 1; at < whole.size(); ++at) {
      if (!begins_character(whole[at])) continue;
      const std::string_view left = whole.substr(0, at), right = whole.substr(at);
      if (known.contains(left) && known.contains(right)) merges.emplace_back(left, right);
    }
    if (by_score) std::reverse(merges.begin() + static_cast<ptrdiff_t>(first), merges.end());
  }
  return merges;
}

}  // namespace

TokenizerJson tokenizer_of_pieces(SentencePieces pieces, MergeOrder order, const SentencePieceClass& known,
                                  const TokenizerConfig& config, UnigramOptions unigram) {
  TokenizerJson out;
  if (known.set_bpe != nullptr) {
    out.merges = merges_of_pieces(pieces, order);
    out.options.pipeline = Pipeline::kByteFallbackBpe;
    out.options.byte_fallback = known.set_bpe(config);
    out.options.decoding.join = DecodingOptions::Join::kFallback;
    out.options.decoding.strip_left = out.options.byte_fallback.prefix == Prefix::kNever ? 0 : 1;
  } else {
    for (const SentencePiece& piece : pieces) unigram.scores.push_back(double{piece.score});
    known.set(unigram, config);
    if (static_cast<size_t>(unigram.unk) < pieces.size()) out.unk_token = pieces[static_cast<size_t>(unigram.unk)].text;
    out.options.pipeline = Pipeline::kUnigram;
    out.options.unigram = std::make_shared<const UnigramOptions>(std::move(unigram));
  }
  for (SentencePiece& piece : pieces) {
    if (piece.kind == SentencePiece::kControl || piece.kind == SentencePiece::kUserDefined) {
      const auto id = static_cast<int32_t>(out.tokens.size());
      out.added.push_back({.content = piece.text, .id = id, .special = piece.kind == SentencePiece::kControl});
    }
    out.tokens.push_back(std::move(piece.text));
  }
  return out;
}

TokenizerJson read_sentencepiece(const std::string& path, const SentencePieceClass& known, const SpecialNames& names,
                                 const TokenizerConfig& config) {
  ModelFile file = ModelFileReader(path).read();
  const bool is_bpe = file.model_type == kBpeType;
  if (is_bpe != (known.set_bpe != nullptr)) {
    fail(kWhere, "{}: a {} must have a model of the type {}, got {}", path, known.name,
         is_bpe ? "1 (unigram)" : "2 (bpe)", file.model_type);
  }
  UnigramOptions unigram{.unk = static_cast<int32_t>(file.unk_id)};
  if (!file.charsmap.empty()) {
    unigram.normalizers.push_back({.kind = NormalizerStep::Kind::kPrecompiled, .text = std::move(file.charsmap)});
  }
  if (is_bpe && !unigram.normalizers.empty()) {
    io::warn(path, "a {} must have no precompiled_charsmap, got one: it is ignored, as by transformers", known.name);
  }
  if (known.arrange != nullptr) known.arrange(file.pieces, names, config);
  const auto unk = std::ranges::find_if(
      file.pieces, [&](const SentencePiece& piece) { return piece.score == 0 && piece.text == names.unk; });
  if (unk != file.pieces.end()) unigram.unk = static_cast<int32_t>(unk - file.pieces.begin());
  TokenizerJson out =
      tokenizer_of_pieces(std::move(file.pieces), MergeOrder::kByPlace, known, config, std::move(unigram));
  if (!config.extra.empty()) out.added.clear();  // as transformers: the settings define them
  const Prefix prefix = is_bpe ? out.options.byte_fallback.prefix : out.options.unigram->prefix;
  if (file.adds_prefix != (prefix != Prefix::kNever)) {
    io::warn(path, "add_dummy_prefix must be {} for a {}, got {}: the class is followed, as by transformers",
             prefix != Prefix::kNever, known.name, file.adds_prefix);
  }
  return out;
}

}  // namespace rf::text
