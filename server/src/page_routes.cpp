// The page for people, and the rotation of a model that it draws.
#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "handlers.h"
#include "json_text.h"
#include "page.h"
#include "rf/io/percent.h"

namespace rf::server {

namespace {

// The source for Content-Security-Policy: the hash of the page's only element of that name.
std::string hash_of(std::string_view element) {
  const size_t begin = kPage.find(fmt::format("<{}>", element)) + element.size() + 2;
  const std::string_view content = kPage.substr(begin, kPage.find(fmt::format("</{}>", element), begin) - begin);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(content.data(), content.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return "'sha256-" + base64_of(std::as_bytes(std::span(digest).first(size))) + '\'';
}

// Nothing but the page's own script and style, and calls of this server.
const std::string& page_policy() {
  static const std::string policy = fmt::format(
      "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      hash_of("script"), hash_of("style"));
  return policy;
}

// The value of a parameter of a target; "" for an absent one.
std::string parameter(std::string_view target, std::string_view name) {
  target.remove_prefix(std::min(target.find('?'), target.size()));
  while (!target.empty()) {
    target.remove_prefix(1);  // ? or &
    const std::string_view pair = target.substr(0, target.find('&'));
    const size_t sign = pair.find('=');
    if (sign != std::string_view::npos && io::percent_decoded(pair.substr(0, sign)) == name)
      return io::percent_decoded(pair.substr(sign + 1));
    target.remove_prefix(pair.size());
  }
  return "";
}

}  // namespace

Answer page(Service&, const Call&) {
  co_return Reply{.body = std::string(kPage),
                  .type = "text/html; charset=utf-8",
                  .fields = {{"Content-Security-Policy", page_policy()},
                             {"Referrer-Policy", "no-referrer"},
                             {"Cache-Control", "no-cache"}}};
}

Answer rotation(Service& service, const Call& call) {
  const ServedModel& model = call.model(parameter(call.request.target(), "model"));
  Reply reply;
  reply.body = co_await service.work.in_pool([&] {
    nlohmann::json report = model.rotation();
    report["model"] = model.name();
    return report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
  co_return reply;
}

}  // namespace rf::server
