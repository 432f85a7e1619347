// The OpenAPI document of all routes: their bodies and results, from tables of fields and of schemas.
#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include "handlers.h"

namespace rf::server {

namespace {

using Json = nlohmann::ordered_json;

// Schemas of fields by their names, and of results, which begin with a capital letter.
constexpr std::pair<const char*, const char*> kSchemas[] = {
    {"Text", R"({"type":"string"})"},
    {"Flag", R"({"type":"boolean"})"},
    {"Texts", R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"minItems":1}]})"},
    {"Ids", R"({"type":"array","items":{"type":"integer","minimum":0},"minItems":1})"},
    {"input", R"({"anyOf":["Texts","Ids",{"type":"array","items":"Ids","minItems":1}]})"},
    {"inputs", R"("Texts")"},
    {"Item", R"({"type":"array","items":{"type":"string"},"minItems":1,"maxItems":2})"},
    {"Items", R"({"anyOf":[{"type":"string"},"Item",{"type":"array","items":"Item","minItems":1}]})"},
    {"Sentences",
     R"({"type":"object","properties":{"source_sentence":{"type":"string"},"sentences":"Texts"},"required":["source_sentence","sentences"]})"},
    {"Document", R"({"type":"object","properties":{"text":{"type":"string"}},"required":["text"]})"},
    {"documents", R"({"type":"array","items":{"anyOf":["Text","Document"]},"minItems":1})"},
    {"ids",
     R"({"anyOf":["Ids",{"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}},"minItems":1}]})"},
    {"encoding_format", R"({"enum":["float","base64"]})"},
    {"Float", R"({"const":"float"})"},
    {"truncation_direction", R"({"enum":["right","Right"]})"},
    {"dimensions", R"({"type":"integer","minimum":1})"},
    {"Types", R"({"type":"array","items":{"enum":["float","base64"]},"minItems":1})"},
    {"input_type", R"({"enum":["search_query","search_document","classification","clustering"]})"},
    {"Truncate", R"({"enum":["END","NONE"]})"},
    {"top_n", R"({"type":"integer","minimum":1,"maximum":1099511627776})"},
    {"Candidates", R"({"type":"integer","minimum":1,"maximum":1000})"},
    {"max_tokens", R"({"type":"integer","minimum":1,"maximum":1048576})"},
    {"temperature", R"({"type":"number","minimum":0,"maximum":2})"},
    {"top_p", R"({"type":"number","minimum":0.000001,"maximum":1})"},
    {"top_k", R"({"type":"integer","minimum":0,"maximum":2147483647})"},
    {"seed", R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})"},
    {"Stop", R"({"type":"string","minLength":1})"},
    {"stop", R"({"anyOf":["Stop",{"type":"array","items":"Stop"}]})"},
    {"choices", R"({"type":"integer","minimum":1,"maximum":16})"},
    {"Best", R"({"type":"integer","minimum":0,"maximum":20})"},
    {"penalty", R"({"type":"number","minimum":-2,"maximum":2})"},
    {"repetition_penalty", R"({"type":"number","minimum":0.01,"maximum":100})"},
    {"logit_bias",
     R"({"type":"object","propertyNames":{"pattern":"^[0-9]{1,9}$"},"additionalProperties":{"type":"number","minimum":-100,"maximum":100}})"},
    {"No", R"({"const":false})"},
    {"Nothing", R"({"const":""})"},
    {"One", R"({"const":1})"},
    {"Object", R"({"type":"object"})"},
    {"None", R"({"type":"array","maxItems":0})"},
    {"Vector", R"({"type":"array","items":{"type":"number"}})"},
    {"Vectors", R"({"type":"array","items":"Vector"})"},
    {"TokenVectors", R"({"type":"array","items":"Vectors"})"},
    {"SparseVectors", R"({"type":"array","items":{"type":"array","items":["index:integer","value:number"]}})"},
    {"Embedding", R"(["object:string","index:integer",{"embedding":{"anyOf":["Vector","Text"]}}])"},
    {"Embeddings", R"(["object:string",{"data":{"type":"array","items":"Embedding"}},"model:string","usage:object"])"},
    {"CohereEmbeddings",
     R"(["id:string","response_type:string",{"embeddings":{"anyOf":["Vectors","Object"]}},{"texts":"Texts"},"meta:object"])"},
    {"Ranking",
     R"(["id:string","model:string",{"results":{"type":"array","items":["index:integer","relevance_score:number"]}},"meta:object"])"},
    {"Completion",
     R"(["id:string","object:string","created:integer","model:string",{"choices":{"type":"array","items":["text:string","index:integer"]}},"usage:object"])"},
    {"Parts", R"({"type":"array","items":"Document"})"},
    {"Content", R"({"anyOf":["Text","Parts"]})"},
    {"Message", R"({"type":"object","properties":{"role":"Text","content":"Content"},"required":["role","content"]})"},
    {"messages", R"({"type":"array","items":"Message","minItems":1})"},
    {"Objects", R"({"type":"array","items":{"type":"object"}})"},
    {"stream_options", R"({"type":"object","properties":{"include_usage":"Flag"}})"},
    {"Tool",
     R"({"type":"object","properties":{"function":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}},"required":["function"]})"},
    {"ToolChoice", R"({"enum":["auto","none","required"]})"},
    {"tool_choice", R"({"anyOf":["ToolChoice","Tool"]})"},
    {"response_format",
     R"({"type":"object","properties":{"type":{"enum":["text","json_object","json_schema"]},"json_schema":{"type":"object","properties":{"schema":"Object"},"required":["schema"]}}})"},
    {"ChatCompletion",
     R"(["id:string","object:string","created:integer","model:string",{"choices":{"type":"array","items":["index:integer","message:object"]}},"usage:object"])"},
    {"Model", R"(["id:string","object:string","created:integer","owned_by:string","kind:string"])"},
    {"Models", R"(["object:string",{"data":{"type":"array","items":"Model"}}])"},
    {"Scores", R"({"type":"array","items":["index:integer","score:number"]})"},
    {"Labels", R"({"type":"array","items":["label:string","score:number"]})"},
    {"Classes", R"({"anyOf":["Labels",{"type":"array","items":"Labels"}]})"},
    {"Tokens", R"({"type":"array","items":{"type":"array","items":["id:integer","text:string","special:boolean"]}})"},
    {"TextList", R"({"type":"array","items":{"type":"string"}})"},
    {"Masks",
     R"({"type":"array","items":{"type":"array","items":{"type":"array","items":["score:number","token:integer","token_str:string"]}}})"},
    {"Info", R"(["model_id:string","model_dtype:string","max_input_length:integer","version:string"])"},
    {"Status", R"(["status:string"])"},
    {"OpenAiError", R"([{"error":["message:string","type:string","code:integer"]}])"},
    {"TeiError", R"(["error:string","error_type:string"])"},
};

// Fields of bodies: "!" marks required fields; "=Schema" names a schema other than the field's name.
struct Description {
  std::string_view path;
  const char* fields;
  const char* result;
};
constexpr const char* kTeiFields =
    "model inputs! truncate=Flag truncation_direction prompt_name=Text normalize=Flag encoding_format=Float dimensions";
constexpr const char* kTokenFields = "model inputs! truncate=Flag truncation_direction prompt_name=Text";
constexpr const char* kRankFields = "model query!=Text documents! top_n return_documents=Flag";
constexpr const char* kCohereFields =
    "model texts!=Texts input_type embedding_types=Types output_dimension=dimensions truncate=Truncate";
constexpr Description kDescriptions[] = {
    {"/v1/embeddings", "model input! dimensions encoding_format prompt_name=Text", "Embeddings"},
    {"/embeddings", "model input! dimensions encoding_format prompt_name=Text", "Embeddings"},
    {"/v1/rerank", kRankFields, "Ranking"},
    {"/v2/rerank", kRankFields, "Ranking"},
    {"/v1/embed", kCohereFields, "CohereEmbeddings"},
    {"/v2/embed", kCohereFields, "CohereEmbeddings"},
    {"/v1/completions",
     "model prompt!=Texts max_tokens temperature top_p top_k seed stop stream=Flag n=choices best_of=One echo=No "
     "suffix=Nothing logprobs=Best stream_options presence_penalty=penalty frequency_penalty=penalty "
     "repetition_penalty logit_bias",
     "Completion"},
    {"/v1/chat/completions",
     "model messages! max_tokens max_completion_tokens=max_tokens temperature top_p top_k seed stop stream=Flag "
     "stream_options n=choices logprobs=Flag top_logprobs=Best presence_penalty=penalty frequency_penalty=penalty "
     "repetition_penalty logit_bias tools=Objects tool_choice response_format chat_template_kwargs=Object",
     "ChatCompletion"},
    {"/v1/models", "", "Models"},
    {"/v1/models/", "", "Model"},
    {"/embed", kTeiFields, "Vectors"},
    {"/embed_all", kTokenFields, "TokenVectors"},
    {"/embed_sparse", kTokenFields, "SparseVectors"},
    {"/similarity", "model inputs!=Sentences prompt_name=Text", "Vector"},
    {"/rerank", "model query!=Text texts!=Texts raw_scores=Flag return_text=Flag truncation_direction", "Scores"},
    {"/predict", "model inputs!=Items raw_scores=Flag truncation_direction", "Classes"},
    {"/tokenize", "model inputs! add_special_tokens=Flag", "Tokens"},
    {"/decode", "model ids! skip_special_tokens=Flag", "TextList"},
    {"/fill-mask", "model inputs! top_k=Candidates targets=None", "Masks"},
    {"/info", "", "Info"},
    {"/rotation", "model", "Object"},
    {"/health", "", "Status"},
    {"/ready", "", "Status"},
    {"/metrics", "", "text/plain"},
    {"/", "model", "text/html"},
    {"/openapi.json", "", "Object"},
};

constexpr Description kOther{"", "", "Object"};

Json reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

// A schema of the table in full: "Name" is a reference, and a list of "name:type" and {"name": schema} an object with
// these properties.
Json expanded(const Json& schema) {
  if (schema.is_string()) return reference(schema);
  Json full = schema;
  if (schema.is_array()) {
    full = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
    for (const Json& each : schema) {
      const bool is_short = each.is_string();
      const std::string text = is_short ? each.get<std::string>() : each.begin().key();
      const std::string name = text.substr(0, text.find(':'));
      full["properties"][name] = is_short ? Json{{"type", text.substr(name.size() + 1)}} : expanded(*each.begin());
      full["required"].push_back(name);
    }
    return full;
  }
  if (schema.contains("items")) full["items"] = expanded(schema["items"]);
  if (schema.contains("anyOf"))
    for (Json& each : full["anyOf"]) each = expanded(each);
  if (schema.contains("properties"))
    for (Json& each : full["properties"]) each = each.is_string() ? expanded(each) : each;
  return full;
}

Json content(const std::string& type, const Json& schema) { return {{"content", {{type, {{"schema", schema}}}}}}; }

// A field that may be absent may also be null.
Json body_of(const std::string& fields) {
  Json body = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  std::istringstream words(fields);
  for (std::string word; words >> word;) {
    const size_t sign = word.find('=');
    std::string name = word.substr(0, sign);
    const bool is_required = name.ends_with('!');
    if (is_required) name.pop_back();
    const Json schema = reference(sign == std::string::npos ? name : word.substr(sign + 1));
    body["properties"][name] = is_required ? schema : Json{{"anyOf", {schema, {{"type", "null"}}}}};
    if (is_required) body["required"].push_back(name);
  }
  return body;
}

Json operation_of(const Route& route, const Description& description) {
  const std::string result = description.result, error = route.dialect == Dialect::kTei ? "TeiError" : "OpenAiError";
  const bool is_post = route.verb == http::verb::post, is_text = result.find('/') != std::string::npos;
  Json success = is_text && !is_post ? content(result, reference("Text"))
                                     : content("application/json", is_text ? Json::object() : reference(result));
  if (std::string_view(route.path).ends_with("/completions")) success["content"]["text/event-stream"] = Json::object();
  success["description"] = "the result";
  Json failure = content("application/json", reference(error));
  failure["description"] = "one sentence with the reason";
  Json operation = {{"summary", route.summary}, {"responses", {{"200", success}, {"default", failure}}}};
  if (is_post) {
    operation["requestBody"] = content("application/json", body_of(description.fields));
    operation["requestBody"]["required"] = true;
  }
  if (route.is_open) operation["security"] = Json::array();
  return operation;
}

}  // namespace

Answer openapi(Service& service, const Call& call) {
  Json schemas = Json::object(), paths = Json::object();
  for (const auto& [name, text] : kSchemas) schemas[name] = expanded(Json::parse(text));
  schemas["model"] = {{"type", "string"}, {"enum", {""}}};
  for (const auto& each : *call.models) schemas["model"]["enum"].push_back(each->name());
  for (const Route& route : routes()) {
    const auto* const found = std::ranges::find(kDescriptions, std::string_view(route.path), &Description::path);
    const Description& description = found == std::end(kDescriptions) ? kOther : *found;
    std::string path = route.path;
    Json operation = operation_of(route, description);
    if (path == "/rotation")
      operation["parameters"] = {{{"name", "model"}, {"in", "query"}, {"schema", reference("model")}}};
    if (path.size() > 1 && path.ends_with('/')) {
      path += "{name}";
      operation["parameters"] = {
          {{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", reference("model")}}};
    }
    paths[path][route.verb == http::verb::post ? "post" : "get"] = operation;
  }
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "roformer serve"}, {"version", ROFORMER_VERSION}}},
                   {"paths", paths},
                   {"components", {{"schemas", schemas}}}};
  if (!service.options.api_key_file.empty()) {
    document["components"]["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
    document["security"] = {{{"key", Json::array()}}};
  }
  co_return Reply{.body = document.dump()};
}

}  // namespace rf::server
