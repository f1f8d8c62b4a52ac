#include "model/chat/globals.h"

#include <array>
#include <ctime>
#include <functional>
#include <string>

#include "model/chat/arguments.h"
#include "model/chat/dict.h"
#include "model/chat/write_value.h"

namespace tessera::model::chat {
namespace {

constexpr std::int64_t kMostOfRange = 100'000;  // as in the sandbox of Jinja

class Native : public Callable {
 public:
  using Body = std::function<Value(Run&, CallArguments&)>;
  explicit Native(Body body) : body_(std::move(body)) {}
  Value call(Run& run, CallArguments& arguments) const override { return body_(run, arguments); }

 private:
  Body body_;
};

Value make_range(Run& run, CallArguments& arguments) {
  if (!arguments.named.empty()) run.refuse("range takes no named arguments");
  const auto [first, second, third] = placed<3>(run, arguments, "range", {"a", "b", "c"});
  if (first == nullptr) run.refuse("range needs an end");
  const std::int64_t a = integer_argument(run, first, 0, "range");
  const std::int64_t begin = second == nullptr ? 0 : a;
  const std::int64_t end = integer_argument(run, second, a, "range");
  const std::int64_t step = integer_argument(run, third, 1, "range");
  if (step == 0) run.refuse("the step of a range is zero");
  std::vector<Value> items;
  std::int64_t at = begin;
  while (step > 0 ? at < end : at > end) {
    if (static_cast<std::int64_t>(items.size()) == kMostOfRange) {
      run.refuse("a range has at most {} numbers", kMostOfRange);
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_list(run, std::move(items), ListKind::range);
}

// dict(a=1), or of another dict.
Value make_dict(Run& run, CallArguments& arguments) {
  DictBuilder builder(run);
  if (arguments.positional.size() > 1) run.refuse("dict takes one argument without a name");
  for (const Value& each : arguments.positional) {
    if (const auto* dict = each.as<Dict>()) {
      for (const auto& [key, value] : (*dict)->entries) builder.set(key, value);
      continue;
    }
    for (const Value& entry : items_of(run, each)) {
      std::vector<Value> pair = items_of(run, entry);
      if (pair.size() != 2) run.refuse("dict needs pairs of a key and a value");
      builder.set(pair[0], std::move(pair[1]));
    }
  }
  for (auto& [name, value] : arguments.named) builder.set(own_text(run, name), std::move(value));
  return builder.take();
}

Value make_namespace(Run& run, CallArguments& arguments, Owned& owned) {
  const Value members = make_dict(run, arguments);
  auto space = std::make_unique<NamespaceData>();
  space->charge = Charge(run, sizeof(NamespaceData));
  for (const auto& [key, value] : (*members.as<Dict>())->entries) {
    space->set(run, text_argument(run, &key, "namespace").view(), value);
  }
  owned.namespaces.push_back(std::move(space));
  return Namespace(owned.namespaces.back().get());
}

[[noreturn]] Value raise(Run& run, CallArguments& arguments) {
  const auto [message] = placed<1>(run, arguments, "raise_exception", {"message"});
  run.refuse("the template refuses this conversation: \"{}\"",
             message == nullptr ? "" : to_text(run, *message).view());
}

Value format_time(Run& run, CallArguments& arguments, std::int64_t unix_time) {
  const auto [format] = placed<1>(run, arguments, "strftime_now", {"format"});
  const std::string text(text_argument(run, format, "strftime_now").view());
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm parts{};
  if (text.size() > 200 || localtime_r(&seconds, &parts) == nullptr) {
    run.refuse("strftime_now cannot write this date or format");
  }
  std::array<char, 4096> buffer{};
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), text.c_str(), &parts);
  return own_text(run, {buffer.data(), size});
}

}  // namespace

void add_globals(Run& run, Scope& scope, Owned& owned, std::int64_t unix_time) {
  const auto add = [&](std::string_view name, Native::Body body) {
    scope.set(run, name, Function(std::make_shared<const Native>(std::move(body))));
  };
  add("range", make_range);
  add("dict", make_dict);
  add("namespace",
      [&owned](Run& r, CallArguments& arguments) { return make_namespace(r, arguments, owned); });
  add("raise_exception", raise);
  add("strftime_now", [unix_time](Run& r, CallArguments& arguments) {
    return format_time(r, arguments, unix_time);
  });
}

}  // namespace tessera::model::chat
