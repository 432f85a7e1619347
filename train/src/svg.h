// Elements of SVG pictures.
#pragma once

#include <string>

namespace rf::train {

std::string escaped_xml(const std::string& text);
// anchor: "start", "middle" or "end".
std::string svg_text(double x, double y, const char* anchor, const std::string& text);
// A white picture of that size around `content`.
std::string svg_document(double width, double height, const std::string& content);

}  // namespace rf::train
