// The templates of known models.
#include "rf/text/sequence_template.h"

namespace rf::text {
namespace {

using Part = SequenceTemplate::Part;
using Piece = SequenceTemplate::Piece;

}  // namespace

SequenceTemplate bert_template(int32_t cls, int32_t sep) {
  const Piece begin = {Part::kSpecial, cls, 0}, first = {Part::kFirst, 0, 0}, end = {Part::kSpecial, sep, 0};
  const Piece second = {Part::kSecond, 0, 1}, second_end = {Part::kSpecial, sep, 1};
  return {.single = {begin, first, end}, .pair = {begin, first, end, second, second_end}};
}

SequenceTemplate roberta_template(int32_t cls, int32_t sep) {
  const Piece begin{Part::kSpecial, cls, 0}, end{Part::kSpecial, sep, 0};
  return {.single = {begin, {Part::kFirst}, end}, .pair = {begin, {Part::kFirst}, end, end, {Part::kSecond}, end}};
}

SequenceTemplate plain_template() {
  return {.single = {{Part::kFirst}}, .pair = {{Part::kFirst}, {Part::kSecond, 0, 1}}};
}

}  // namespace rf::text
