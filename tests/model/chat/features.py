"""Templates of our own, a few for each part of Jinja that chat templates use."""

WHITE_SPACE = [
    "a\n  {% if true %}\n  b\n  {% endif %}\n  {{ 1 }}\nc\n",
    "a  \n {%- if true -%}  \n b {%+ endif +%}\n c",
    "x\n  {# note #}\n y\n{#- left -#}\n z {#+ kept +#}\n w",
    "  {%+ if true %}a{% endif %}\n\n",
    "{% raw %}\n{{ a }}\n  {% endraw %}\nb {%- raw -%}  {% if %} {%- endraw -%}  c",
    "\n\n{{- 'a' -}}\n\n{{ 'b' }}\n{{+ 'c' }}",
    "one\r\ntwo\rthree{% if true %}\r\nfour{% endif %}\r\n",
    "{% for i in [1, 2] %}\n  {{ i }}\n{% endfor %}\nend",
    "\t{% set a = 1 %}\n\t{% set b = 2 %}\t\n{{ a }}{{ b }}",
    "{{ 'a' }}  {% if true %}  b  {% endif %}  c",
    "{#\n a comment\n of lines #}\n\n  text",
    "{%- for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{%- endfor %}",
    "{ { % # } {{ '{{' }} {{ \"%}\" }} {% if '}}' %}{{ '#}' }}{% endif %}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'x': {}}}}",
]

LOOPS = [
    ("{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}|{% endfor %}"),
    ("{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>"
    "{{ loop.nextitem.role if loop.nextitem is defined else '-' }} {% endfor %}"),
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'nobody' %}x{% else %}none{% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for a, b in {'x': 1, 'y': 2}.items() %}{{ a }}={{ b }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for c in 'héé' %}{{ loop.cycle('odd', 'even') }}{{ c }}{% endfor %}",
    "{% for k in {'p': 1, 'q': 2} %}{{ k }}{% endfor %}{% for x in nothing %}x{% else %}empty{% endfor %}",
    "{% for i in [1, 2] %}{% for j in 'ab' %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }};{% endfor %}",
    "{% set x = 0 %}{% for i in [1, 2, 3] %}{{ x }}{% set x = i %}{{ x }},{% endfor %}{{ x }}",
    "{% for i in [1, 2, 3] %}{% if i == 1 %}{% set y = 1 %}{% endif %}[{{ y }}]{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for i in range(9) if ns.n < 3 %}{% set ns.n = ns.n + 1 %}{{ i }}{% endfor %}",
    "{% for i in (1, 2), (3, 4) %}{{ i }}{% endfor %}{% for x in 5, %}{{ x }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}{% for m in messages[1:] %}{{ m.role }}{% endfor %}",
    "{% for i in 5 %}x{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}x{% endfor %}",
    "{% for m in messages | reverse %}{{ m.role }} {% endfor %}",
    "{% for i in [3] %}{{ loop.previtem.x }}{% endfor %}",
]

CONDITIONS = [
    "{% if messages[0].role == 'system' %}S{% elif messages | length > 1 %}M{% else %}O{% endif %}",
    "{{ 'a' if false else 'b' if true else 'c' }}{{ 1 if false }}{{ (1 if false) is defined }}",
    "{% if not a and (b or 1) %}x{% endif %}{{ 0 or 'd' }}{{ '' and 'e' }}{{ not [] }}",
    "{% if tools %}t{% else %}-{% endif %}{% if tools is none %}n{% endif %}{% if tools is defined %}d{% endif %}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ not 1 in [1] }} {{ 1 not in [1] }} {{ 'a' in 'cat' }} {{ 'k' in {'k': 1} }}",
    "{{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }} {{ [1] == (1,) }}",
    "{{ 1 < 'a' }}",
    "{{ undefined_name == other }} {{ undefined_name != 1 }} {{ none == false }}",
    "{{ 1 in 5 }}",
    "{{ missing in [1] }} {{ 1 in missing }}",
]

VALUES = [
    "{{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e-5 }} {{ 0.1 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ -0.0 }} {{ 1_000 }} {{ 1.5e3 }}",
    "{{ true }} {{ False }} {{ none }} {{ None }} {{ [1, 'a', none, true, 2.5] }} {{ {'a': [1, {'b': ()}]} }} {{ (1,) }}",
    "{{ ['it\\'s', 'q\"', 'n\\n\\t\\\\', 'é\\u200b\\U0001F600', '\\x07', '\\'\"'] }}",
    "{{ 'a' 'b' \"c\" }} {{ '\\101\\x41\\u0041\\q\\'' }} {{ \"tab\\there\" }}",
    "{{ -2 ** 2 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -1 | abs }} {{ 7 // -2 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ -7 // 2.0 }}",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ 5.5 % 2 }} {{ -5.5 % 2 }} {{ +3 }} {{ - -3 }}",
    "{{ 'a' ~ 1 ~ none ~ [1] ~ missing }} {{ 'x' ~ 1 * 2 }} {{ 1 ~ 2 + 3 }}",
    "{{ 1 / 0 }}",
    "{{ 'a' + 1 }}",
    "{{ missing + 'a' }}",
    "{{ -'a' }}",
    "{{ [1, 2, 3][0] }}{{ [1, 2, 3][-1] }}{{ [1][5] }}{{ 'abc'[1] }}{{ none.foo }}{{ none['a'] }}{{ (5).x }}{{ [7, 8].1 }}",
    "{{ 'héllo'[1:3] }}{{ 'héllo'[::-1] }}{{ 'héllo'[-3:] }}{{ 'abc'[5:] }}{{ [1, 2, 3, 4][::2] }}{{ [1, 2, 3, 4][3:0:-2] }}",
    "{{ 'abcdef'[-100:100:2] }}{{ 'abcdef'[4:1:-1] }}{{ (1, 2, 3)[1:] }}{{ 'abc'[none:2] }}{{ [1, 2, 3][:-1] }}",
    "{{ x.y }}",
    "{{ {'a': 1}.b.c }}",
    "{{ {'items': 5}.items is callable }}{{ {'items': 5}['items'] }}{{ {'a': 1, 'a': 2} }}{{ {1: 'i', 'k': 2}[1] }}",
    "{{ messages[0]['content'] }}{{ messages[0].content }}{{ messages[0].get('name', 'anon') }}{{ messages[-1].role }}",
    "{{ 'abc'.nothing }}|{{ [1].nothing }}|{{ {}.nothing }}",
    "{{ missing.attribute }}",
    "{{ missing['key'] }}",
    "{{ 'a'.missing() }}",
    "{{ 9223372036854775807 }} {{ 0 }} {{ 00 }}",
    "{{ {[1]: 2} }}",
    "{{ range(3) | list }} {{ range(1, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(4)[1] }} {{ range(100001) }}",
    "{{ dict(a=1, b='c') }} {{ dict({'x': 1}, y=2) }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }} {{ {'a': 1}.items() }}",
]

SETS = [
    "{% set a = 1 %}{% set b, c = a + 1, 'x' %}{{ a }}{{ b }}{{ c }}",
    "{% set text %}one {{ 1 + 1 }}{% set inner = 3 %} three{% endset %}{{ text }}{{ inner }}{{ text | length }}",
    "{% set text | upper | replace('B', '-') %}abc{% endset %}{{ text }}",
    "{% set ns = namespace(a=1, b='x') %}{% set ns.a = 5 %}{% set ns.c = [1] %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d }}",
    "{% set ns = namespace({'a': 2}, b=3) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% if true %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% set missing.x = 1 %}",
    "{% with a = 1, b = 2 %}{% set c = 3 %}{{ a }}{{ b }}{{ c }}{% endwith %}{{ a }}{{ c }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% filter upper %}a{% set y = 3 %}b{{ y }}{% endfilter %}{{ y }}",
    "{% filter trim | replace('b', 'c') %}  ab {% endfilter %}.",
    "{% set loop_messages = messages[1:] if messages[0].role == 'system' else messages %}{{ loop_messages | length }}",
    "{% set a = namespace() %}{% set a.x %}body{% endset %}{{ a.x }}",
]

MACROS = [
    "{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c='y') }}{{ f(b=1, a=0) }}{{ f() }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3) }}",
    "{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "{% macro f() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{{ x }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}{{ f() }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro box(title) %}<{{ title }}:{{ caller(3) }}>{% endmacro %}{% call(n) box('t') %}{{ n }}{{ n + 1 }}{% endcall %}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% set v = 7 %}{% call f() %}v{{ v }}{% endcall %}",
    "{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
    "{% macro f() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
    "{% macro show(m) -%}\n  {{ m.role }}: {{ m.content | trim }}\n{%- endmacro %}\n{% for m in messages %}{{ show(m) }}\n{% endfor %}",
    "{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(2) }}{% endmacro %}{{ outer(1) }}",
    ("{% macro f(x) %}{% for i in x %}{% if i is mapping %}{{ f(i.values()) }}{% else %}{{ i }}{% endif %}{% endfor %}{% endmacro %}"
    "{{ f([1, {'a': 2, 'b': 3}, 4]) }}"),
    "{{ missing_macro(1) }}",
    "{{ 'text'() }}",
]

FILTERS = [
    "{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 5 | trim }}|{{ missing | trim }}|{{ none | trim }}",
    "{{ 'abc' | length }}{{ [1, 2] | count }}{{ {} | length }}{{ missing | length }}{{ 'é' | length }}",
    "{{ 5 | length }}",
    "{{ [1, 'b', none] | join('-') }}{{ 'abc' | join(',') }}{{ [] | join }}{{ messages | join('/', attribute='role') }}",
    "{{ {'b': [1, 2.5, true, none], 'a': 'é\"\\n<'} | tojson }}",
    "{{ {'b': [1, {'c': []}], 'a': {}} | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 'é😀', 3: 4} | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, indent=4) }}",
    "{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}{{ (1, 2) | tojson }}{{ 'x\\u0001\\u007f' | tojson }}{{ 1e20 | tojson }}",
    "{{ missing | tojson }}",
    "{{ messages | tojson }}",
    "{{ [1, 2] | map('string') | tojson }}",
    "{{ 'straße ÉÀ' | upper }}{{ 'ÀB c' | lower }}{{ 'hELLO wORLD' | capitalize }}{{ 'hello wORLD-foo (bar' | title }}{{ 5 | upper }}",
    "{{ missing | default('d') }}{{ '' | default('d', true) }}{{ none | d('q') }}{{ none | default('q', boolean=true) }}{{ missing | default }}",
    "{{ 'aXbX' | replace('X', '--') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ 'abc' | replace('', '.') }}{{ 121 | replace(1, 'x') }}",
    "{{ [3, 1, 2] | first }}{{ [3, 1, 2] | last }}{{ 'abc' | first }}{{ 'abc' | last }}{{ [] | first }}{{ {'a': 1} | first }}",
    "{{ 'abc' | list }}{{ {'a': 1} | list }}{{ missing | list }}{{ (1, 2) | list }}",
    "{{ [1, 2, 3] | map('string') | join('-') }}{{ messages | map(attribute='role') | list }}{{ [{}, {'a': 1}] | map(attribute='a', default=7) | list }}",
    "{{ [{'a': {'b': 5}}] | map(attribute='a.b') | list }}{{ [[1, 2]] | map(attribute=1) | list }}{{ ['a '] | map('trim') | map('upper') | list }}",
    "{{ ['a', 'b'] | map('default', 'x') | list }}{{ [[3, 1]] | map('sort', reverse=true) | list }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'eq', 'user') | map(attribute='role') | list }}",
    "{{ messages | selectattr('content') | list | length }}{{ messages | selectattr('name', 'defined') | list }}{{ [1, 0, 2] | select | list }}",
    "{{ [1, 2, 3, 4] | select('odd') | list }}{{ [1, 2, 3] | reject('even') | list }}{{ [1, 2, 3] | select('gt', 1) | list }}{{ [1, 'a'] | select('string') | list }}",
    "{{ messages | selectattr('role', 'in', ['user', 'tool']) | list | length }}{{ ['a', 'b'] | reject('in', ['a']) | list }}",
    "{{ (messages | selectattr('role', '==', 'user')) | length }}",
    "{% if [] | select %}always{% endif %}{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}",
    "{% set g = [1, 2, 3] | map('string') %}{{ g | first }}{{ g | list }}{{ '2' in g }}",
    "{{ {'b': 1, 'A': 2, 'c': 0} | dictsort }}{{ {'b': 1, 'A': 2} | dictsort(true) }}{{ {'b': 1, 'a': 2} | dictsort(by='value', reverse=true) }}",
    "{{ {'b': 1, 'a': 2} | items | list }}{% for k, v in {'x': 1} | items %}{{ k }}{{ v }}{% endfor %}{{ missing | items | list }}",
    "{{ 3 | string + 'x' }}{{ none | string }}{{ [1] | string }}{{ 'a' | safe }}{{ 1.0 | string }}",
    "{{ '42' | int }}{{ ' 7 ' | int }}{{ '3.9' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ 3.7 | int }}{{ none | int }}{{ true | int }}{{ -3.7 | int }}",
    "{{ '1.5' | float }}{{ 'x' | float }}{{ 3 | float }}{{ 'x' | float(2.5) }}{{ '1e3' | float }}",
    "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ [1, 2] | sort(reverse=true) }}{{ messages | sort(attribute='role') | map(attribute='role') | list }}",
    "{{ [1, 'a'] | sort }}",
    "{{ [1, 2, 1, 'a', 'A'] | unique | list }}{{ ['a', 'A'] | unique(case_sensitive=true) | list }}{{ messages | unique(attribute='role') | map(attribute='role') | list }}",
    "{{ 'abc' | reverse }}{{ [1, 2] | reverse | list }}{{ {'a': 1, 'b': 2} | reverse | list }}",
    "{{ [1, 2, 3] | sum }}{{ [{'v': 2}, {'v': 3}] | sum(attribute='v', start=10) }}{{ [3, 1] | min }}{{ ['b', 'A'] | max }}{{ [] | max }}",
    "{{ 'a\\n\\nb\\n' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent('> ', blank=true) }}|{{ '' | indent(2, first=true) }}",
    "{{ -5 | abs }}{{ 2.567 | round(2) }}{{ 2.5 | round }}{{ 7 | round }}{{ 2.1 | round(method='ceil') }}{{ 2.19 | round(1, 'floor') }}",
    "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 'x') | list }}",
    "{{ '%s-%d%%' % ('a', 5) }}{{ '%s' % 'x' }}{{ '%s %s' | format(1, [2]) }}",
    "{{ '<a>' | safe + '<b>&\\'\"' + '<c>' }}{{ '<x>' + '<y>' | safe }}{{ ('<a>' | safe) ~ '<b>' }}{{ 1 | safe + '<' }}",
    "{{ 'x' | nonexistent }}",
    "{{ 'x' | upper(1) }}",
    "{{ 1 if true else ('x' | nonexistent) }}",
]

TESTS = [
    "{{ x is defined }}{{ tools is defined }}{{ x is undefined }}{{ none is none }}{{ 0 is none }}{{ messages is not none }}",
    "{{ 'a' is string }}{{ 1 is string }}{{ {} is mapping }}{{ [] is mapping }}{{ [] is iterable }}{{ 'a' is iterable }}{{ 1 is iterable }}",
    "{{ [] is sequence }}{{ 'a' is sequence }}{{ {} is sequence }}{{ 1 is sequence }}{{ missing is sequence }}{{ {}.keys() is sequence }}{{ range(2) is sequence }}",
    "{{ 1 is number }}{{ 1.5 is number }}{{ true is number }}{{ '1' is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is integer }}{{ 1.0 is float }}",
    "{{ true is boolean }}{{ 1 is boolean }}{{ true is true }}{{ false is false }}{{ 1 is true }}{{ 0 is false }}",
    "{{ 1 is equalto 1 }}{{ 1 is eq 2 }}{{ 1 is ne(2) }}{{ 'a' is in ['a'] }}{{ 'a' is not in 'cat' }}{{ 3 is gt 2 }}{{ 3 is le(2) }}{{ 2 is lessthan 3 }}",
    "{{ 3 is odd }}{{ 3 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ -3 is odd }}",
    "{{ 'abc' is lower }}{{ 'ABC' is upper }}{{ 'aB' is lower }}{{ '1' is upper }}{{ none is sameas none }}{{ 1 is sameas true }}",
    "{{ x is not defined and true }}{{ x is defined or 'y' }}{{ not x is defined }}{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}",
    "{{ x is defined is true }}",
    "{{ range is callable }}{{ 1 is callable }}{{ 1 is nonexistent }}",
    "{{ messages[0].content is string and messages[0].content is not mapping }}",
]

METHODS = [
    "{{ '  a ' .strip() }}|{{ 'xxaxy'.strip('xy') }}|{{ '  a '.lstrip() }}|{{ '  a '.rstrip() }}|{{ '\\n\\ta\\n'.lstrip('\\n') }}|{{ 'abc'.rstrip('bc') }}",
    "{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b '.split() }}{{ 'a b c'.split(none, 1) }}{{ ''.split(',') }}{{ ''.split() }}{{ 'aXXb'.split('XX')[-1] }}",
    "{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ 'a b c '.split(maxsplit=1) }}{{ 'aaa'.split('aa') }}{{ 'aaa'.rsplit('aa') }}",
    "{{ 'a'.split('') }}",
    "{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a\\nb\\n'.splitlines(true) }}{{ ''.splitlines() }}{{ 'a\\n\\nb'.splitlines() }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abc'.startswith('') }}",
    "{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ 'they\\'re bill\\'s x2y'.title() }}{{ 'hELLO'.capitalize() }}{{ ''.capitalize() }}",
    "{{ 'aXbX'.replace('X', '-') }}{{ 'aaa'.replace('a', 'b', 1) }}{{ 'abc'.replace('', '.', 2) }}{{ 'é'.replace('é', 'e') }}",
    "{{ 'héllo'.find('l') }}{{ 'abc'.find('x') }}{{ 'abcabc'.rfind('b') }}{{ 'abcabc'.find('b', 2) }}{{ 'abc'.index('c') }}{{ 'aXaXa'.count('a') }}{{ 'é'.count('') }}",
    "{{ 'abc'.index('x') }}",
    "{{ ', '.join(['a', 'b']) }}{{ ''.join('abc') }}{{ '-'.join({'a': 1, 'b': 2}) }}",
    "{{ ','.join([1]) }}",
    "{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'aé'.isalpha() }}{{ ' \\n'.isspace() }}{{ ''.isspace() }}{{ 'Ab'.isupper() }}{{ 'ab1'.islower() }}{{ '½'.isnumeric() }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 3) }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | list }}",
    "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ {'a': 1}.copy() }}",
    "{{ [1].append(2) }}",
    "{% set x = {} %}{{ x.update({'a': 1}) }}",
    "{{ {'a': 1}.pop('a') }}",
    "{{ 'a'.upper is callable }}",
    "{{ '{} {}'.format(1, 'b') }}{{ '{1}{0}'.format('a', [2]) }}{{ '<{x}>{{}}'.format(x=none) }}{{ 'é'.format() }}",
    "{{ '{} {}'.format(1) }}",
    "{{ '{'.format(1) }}",
    "{{ ('a' ~ 'b').upper().lower().title() }}{{ 'a b'.split()[0].upper() }}{{ 'ab'.strip().split('b')[0][::-1] }}",
]

GLOBALS = [
    "{{ raise_exception('no!') }}",
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H') }}|{{ strftime_now('%A, %B') }}|{{ strftime_now('') }}",
    "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ bos_token + 'x' }}",
    "{{ pad_token + 'x' }}",
    "{% generation %}a{{ 1 }}{% set z = 1 %}{% endgeneration %}{{ z }}",
    "{% if add_generation_prompt %}go{% endif %}",
]

# In the manner of published templates; each written anew.
CHATS = [
    ("{{ bos_token }}{% for message in messages %}{{ '<|head|>' + message['role'] + '<|/head|>\\n\\n' + message['content'] | trim + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\\n\\n' }}{% endif %}"),
    """{%- if messages[0]['role'] == 'system' -%}
    {%- set system_message = messages[0]['content'] -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set system_message = 'Default.' -%}
    {%- set rest = messages -%}
{%- endif -%}
[SYS]{{ system_message }}[/SYS]
{%- for m in rest -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate: ' + m['role']) -}}
    {%- endif -%}
    {%- if m.role == 'user' -%}
        {{- ' [INST] ' + m.content.strip() + ' [/INST]' -}}
    {%- else -%}
        {{- ' ' + m.content + eos_token -}}
    {%- endif -%}
{%- endfor -%}
""",
    """{%- set ns = namespace(multi_step=true, last_user=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_user = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- set content = message.content %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_user and (loop.last or thoughts) %}
            {{- '<start>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<start>assistant\\n' + content }}
        {%- endif %}
        {{- '<end>\\n' }}
    {%- else %}
        {{- '<start>' + message.role + '\\n' + message.content + '<end>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    """{%- macro describe(schema, depth=0) -%}
    {%- if schema.type is defined and schema.type == 'object' -%}
        {{- '{' -}}
        {%- for name, inner in (schema.properties | default({})).items() -%}
            {{- '\\n' + '  ' * (depth + 1) + name }}{{ '?' if name not in schema.get('required', []) }}: {{ describe(inner, depth + 1) -}}
        {%- endfor -%}
        {{- '\\n' + '  ' * depth + '}' -}}
    {%- elif schema.enum is defined -%}
        {{- schema.enum | map('tojson') | join(' | ') -}}
    {%- else -%}
        {{- schema.type | default('any') -}}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}
    {%- set f = tool.function if tool.function is defined else tool -%}
    // {{ f.description | default('', true) | trim }}
type {{ f.name }} = (_: {{ describe(f.parameters) }}) => any;
{% endfor -%}
{{ tools | tojson(indent=2) if tools else 'no tools' }}
""",
    """Cutting off: 2023-12
Today: {{ strftime_now("%d %b %Y") }}
{% for m in messages %}
{% if m.content is string %}
{{ m.role | capitalize }}: {{ m.content }}
{% elif m.content is iterable %}
{% for part in m.content %}
{{ m.role }} {{ part.type }}: {{ part['text'] if part.type == 'text' else '(' ~ part.type ~ ')' }}
{% endfor %}
{% else %}
{{ m.role }}: {{ m.content }}
{% endif %}
{% endfor %}
""",
    ("{% for m in messages %}{% if not loop.first %}{{ '\\n' }}{% endif %}{{ '<' ~ m.role ~ '>' }}"
    "{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | tojson }})"
    "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
]

GROUPS = {
    "white space": WHITE_SPACE,
    "loops": LOOPS,
    "conditions": CONDITIONS,
    "values": VALUES,
    "sets": SETS,
    "macros": MACROS,
    "filters": FILTERS,
    "tests": TESTS,
    "methods": METHODS,
    "globals": GLOBALS,
    "chats": CHATS,
}

CONVERSATIONS = [
    {"messages": [{"role": "user", "content": "Hello"}]},
    {
        "messages": [
            {"role": "system", "content": "  Be brief. \n"},
            {"role": "user", "content": "Héllo <|end|> \"quoted\" {{ braces }}"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi!"},
            {"role": "user", "content": "Tell me\nmore."},
        ],
        "variables": {"enable_thinking": False},
    },
    {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image"}]},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1, "a": "é"}}}]},
            {"role": "tool", "content": "42", "name": "f"},
            {"role": "assistant", "content": "It is 42.", "reasoning_content": "look"},
        ],
        "add_generation_prompt": False,
        "variables": {
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "f",
                        "description": "Looks.\n",
                        "parameters": {
                            "type": "object",
                            "properties": {"x": {"type": "integer"}, "u": {"enum": ["a", "b"]}, "o": {"type": "object"}},
                            "required": ["x"],
                        },
                    },
                }
            ]
        },
    },
    {"messages": [{"role": "assistant", "content": "I begin."}, {"role": "custom", "content": None}]},
]

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name"},
                "unit": {"type": "string", "enum": ["c", "f"]},
                "days": {"type": ["integer", "null"]},
                "parts": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
        },
    },
}
CALL = {"type": "function", "id": "abcdefghi", "function": {"name": "weather", "arguments": {"city": "Paris"}}}
HELLO, MORE = {"role": "user", "content": "Hello"}, {"role": "user", "content": "More? <b>&"}
ANSWERED = {"role": "tool", "content": "20 C", "tool_call_id": "abcdefghi", "name": "weather"}

# What chats with published models look like: thoughts, their switches, dates, tools and their answers, developers.
DIALOGUES = [
    {"messages": [{"role": "system", "content": "Be brief."}, HELLO, {"role": "assistant", "content": "Hi!"}, MORE]},
    {"messages": [{"role": "system", "content": "Be brief. /no_think"}, HELLO], "variables": {"enable_thinking": False}},
    {
        "messages": [HELLO, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi!"}, MORE],
        "variables": {"enable_thinking": True, "reasoning_effort": "high"},
    },
    {
        "messages": [HELLO, {"role": "assistant", "content": "Hi!", "reasoning_content": "A greeting."}, MORE],
        "variables": {"date_string": "1 Jan 2025"},
    },
    {"messages": [HELLO, {"role": "assistant", "content": "Hi!"}], "add_generation_prompt": False},
    {"messages": [{"role": "system", "content": "s"}, HELLO], "variables": {"tools": [TOOL]}},
    {
        "messages": [HELLO, {"role": "assistant", "content": "", "tool_calls": [CALL]}, ANSWERED, {"role": "assistant", "content": "20"}, MORE],
        "variables": {"tools": [TOOL]},
    },
    {
        "messages": [HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}, ANSWERED],
        "variables": {"tools": [TOOL], "xml_tools": [TOOL]},
    },
    {
        "messages": [{"role": "developer", "content": "Be kind."}, HELLO],
        "variables": {"builtin_tools": ["browser", "python"], "model_identity": "You are a model."},
    },
    {"messages": [HELLO, MORE]},
]
