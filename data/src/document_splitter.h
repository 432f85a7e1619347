// Divides text into documents, and passes long ones on in pieces that may be tokenized separately.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "rf/data/reader.h"
#include "rf/io/utf8.h"

namespace rf::data {

inline constexpr size_t kLongDocumentBytes = size_t{1} << 17;  // shorter ones are not cut

inline constexpr std::string_view kWhitespace{" \t\r\n\f\v"};
inline constexpr size_t kMaxPieceBytes = size_t{1} << 22;

// Letters, recognised by the first one or two bytes of a character: ASCII, Greek to Arabic, kana, Chinese and Hangul.
// These ranges include some punctuation, which is harmless in running text.
inline bool is_letter(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]), second = static_cast<unsigned char>(text[at + 1]);
  const unsigned char lower = first | 0x20;
  return (lower >= 'a' && lower <= 'z') || (first >= 0xCE && first <= 0xDB) ||
         (first == 0xE3 && second >= 0x81 && second <= 0x83) || (first >= 0xE4 && first <= 0xED);
}
inline bool is_letter_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  for (int i = 0; i < 2 && !begins_character(text[at]); ++i) --at;
  return is_letter(text, at);
}

// The last place to cut with at least one character on either side; 0 for none. A space is preferred, because a
// byte-level tokenizer with add_prefix_space adds one before a text that does not begin with a space.
inline size_t last_word_begin(std::string_view text) {
  constexpr size_t kBefore = 3, kAfter = 2;
  for (const std::string_view mark : {" ", "\n", "，", "。"}) {
    const std::string_view searched = text.substr(0, text.size() - kAfter);
    for (size_t at = searched.rfind(mark); at != std::string_view::npos && at >= kBefore;
         at = searched.rfind(mark, at - 1)) {
      if (is_letter_before(text, at) && is_letter(text, at + mark.size())) return at;
    }
  }
  return 0;
}

inline size_t last_resort(std::string_view text) {
  const size_t space = text.find_last_of(kWhitespace);
  if (space != std::string_view::npos && space > 0) return space;
  size_t at = text.size() - 1;
  for (int i = 0; i < 3 && !begins_character(text[at]); ++i) --at;
  return at;
}

// The number of leading ASCII white space characters.
inline size_t leading_blanks(std::string_view text) {
  return std::min(text.find_first_not_of(kWhitespace), text.size());
}
// Only ASCII white space.
inline bool is_blank(std::string_view text) { return leading_blanks(text) == text.size(); }

// Collects the text of a document. A long document is cut before a single space, line end, "，" or "。" with a letter
// on either side. BERT, jieba and the byte-level patterns of GPT-2 and its successors all begin a word there. So the
// tokens equal the tokens of the whole text, except for an added token that spans such a place. A text of 4 MiB without
// such a place is cut before white space, or else between two characters, which may split a word.
class DocumentCutter {
 public:
  explicit DocumentCutter(const std::function<void(const DocumentPart&)>& piece) : piece_(piece) {}

  void add(std::string_view text) {
    while (!text.empty()) {
      const size_t bytes = std::min(text.size(), next_cut_ - text_.size());
      text_ += text.substr(0, bytes);
      text.remove_prefix(bytes);
      if (text_.size() == next_cut_) cut();
    }
  }
  // A document of only white space is left out.
  void end_document() {
    if (begun_ || !is_blank(text_)) piece_({text_, DocumentPart::End::kOfDocument});
    text_.clear();
    next_cut_ = kLongDocumentBytes;
    begun_ = false;
  }
  void add_document(std::string_view text) {
    if (text_.empty() && !begun_ && text.size() < kLongDocumentBytes) {
      if (!is_blank(text)) piece_({text, DocumentPart::End::kOfDocument});
    } else {
      add(text);
      end_document();
    }
  }

 private:
  void cut() {
    size_t at = last_word_begin(text_);
    if (at == 0 && text_.size() == kMaxPieceBytes) at = last_resort(text_);
    if (at > 0) {
      piece_({std::string_view(text_).substr(0, at), DocumentPart::End::kNo});
      text_.erase(0, at);
      begun_ = true;
    }
    // Doubles the size if no place was found, so that searching takes little time compared with reading.
    next_cut_ = std::clamp(2 * text_.size(), kLongDocumentBytes, kMaxPieceBytes);
  }

  const std::function<void(const DocumentPart&)>& piece_;
  std::string text_;
  size_t next_cut_ = kLongDocumentBytes;  // size of text_ at which the next search begins
  bool begun_ = false;                    // a piece of this document was passed on
};

// Divides a text, which arrives in pieces of any size, into documents by a DocumentRule. "\r\n" is read as "\n", and a
// "\r" at the end is dropped; any other "\r" is white space. With kLine, documents do not include the line end.
class DocumentSplitter {
 public:
  DocumentSplitter(DocumentRule rule, DocumentCutter& cutter) : rule_(rule), cutter_(cutter) {}

  void add(std::string_view text) {
    if (text.empty()) return;
    if (return_waits_ && text.front() != '\n') add_lines("\r");
    return_waits_ = text.back() == '\r';
    if (return_waits_) text.remove_suffix(1);
    add_lines(text);
  }
  // Ends the document; another text may follow.
  void finish() {
    return_waits_ = false;
    waiting_.clear();
    line_is_blank_ = true;
    cutter_.end_document();
  }

 private:
  // `text` does not end in a "\r" that may belong to a "\r\n" with the following text.
  void add_lines(std::string_view text) {
    if (rule_ == DocumentRule::kFile) {
      for (size_t end = text.find("\r\n"); end != std::string_view::npos; end = text.find("\r\n")) {
        cutter_.add(text.substr(0, end));
        text.remove_prefix(end + 1);
      }
      cutter_.add(text);
      return;
    }
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      std::string_view line = text.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      add_line(line);
      text.remove_prefix(end + 1);
    }
    if (rule_ == DocumentRule::kLine) {
      cutter_.add(text);
    } else {
      add_to_blank_line_document(text);
    }
  }
  // The rest of a line, without its end.
  void add_line(std::string_view line) {
    if (rule_ == DocumentRule::kLine) {
      cutter_.add_document(line);
      return;
    }
    add_to_blank_line_document(line);
    if (line_is_blank_) {
      waiting_.clear();
      cutter_.end_document();
    } else {
      waiting_ = '\n';
    }
    line_is_blank_ = true;
  }
  void add_to_blank_line_document(std::string_view text) {
    if (line_is_blank_) {
      const size_t blanks = leading_blanks(text);
      waiting_ += text.substr(0, std::min(blanks, kLongDocumentBytes - waiting_.size()));
      text.remove_prefix(blanks);
      if (text.empty()) return;
      line_is_blank_ = false;
      cutter_.add(waiting_);
      waiting_.clear();
    }
    cutter_.add(text);
  }

  DocumentRule rule_;
  DocumentCutter& cutter_;
  bool return_waits_ = false;  // a "\r" that may belong to "\r\n"
  // kBlankLine: the last line end, and white space at the start of a line, which are added if the document continues;
  // at most kLongDocumentBytes, to bound memory.
  std::string waiting_;
  bool line_is_blank_ = true;
};

}  // namespace rf::data
