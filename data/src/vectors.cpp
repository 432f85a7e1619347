// Selects the type of the id column (rf/data/vectors.h); parquet_arrow.cpp writes it.
#include "rf/data/vectors.h"

#include <charconv>

namespace rf::data {

IdColumn with_id(IdColumn column, std::string_view id) {
  if (id.empty()) return column;
  int64_t number = 0;
  const char* const end = id.data() + id.size();
  const auto [rest, error] = std::from_chars(id.data(), end, number);
  const bool is_integer = error == std::errc() && rest == end;
  return is_integer && column != IdColumn::kTexts ? IdColumn::kIntegers : IdColumn::kTexts;
}

}  // namespace rf::data
