#!/usr/bin/env bash
# Compiles the programs of this folder against an installed libpenstock, and runs them: with AddressSanitizer and the static
# library, and under valgrind (where it is installed) with the shared one.
# usage: run.sh PREFIX
set -euo pipefail
prefix=$(realpath "$1")
here=$(dirname "$0")
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
strict="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g"

read -ra compile <<<"$strict $(pkg-config --cflags penstock)"
read -ra shared <<<"$(pkg-config --libs penstock) -lpthread -Wl,-rpath,$prefix/lib"
read -ra static <<<"$prefix/lib/libpenstock.a $(pkg-config --libs-only-l --static penstock | sed 's/-lpenstock//')"
for program in penstock flux threads; do
	cc "${compile[@]}" -fsanitize=address "$here/$program.c" -o "$built/asan" "${static[@]}"
	echo "$program.c, AddressSanitizer: $("$built/asan")"
	cc "${compile[@]}" "$here/$program.c" -o "$built/plain" "${shared[@]}"
	if command -v valgrind >/dev/null; then
		echo "$program.c, valgrind: $(valgrind --quiet --leak-check=full --error-exitcode=1 "$built/plain")"
	else
		echo "$program.c: $("$built/plain") (valgrind is not installed)"
	fi
done

# The example of the documentation prints what stands below it.
page=$here/../../../docs/c.md
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$page" | sed '/^```/d'; }
block c >"$built/example.c"
cc "${compile[@]}" "$built/example.c" -o "$built/example" "${shared[@]}"
diff <(block text) <("$built/example")
echo "docs/c.md: passed"

# The header is also one of C++.
if command -v c++ >/dev/null; then
	printf '#include <penstock.h>\n#include <flux/hostlist.h>\n#include <flux/idset.h>\nint main() { return 0; }\n' |
		c++ -x c++ -Wall -Werror "${compile[@]:2}" -fsyntax-only -
	echo "headers, C++: passed"
fi

# Nothing is exported but the functions of the headers, each with its version.
exported=$(nm --dynamic --defined-only "$prefix/lib/libpenstock.so" | awk '$2 == "T" { print $3 }' | sort)
declared=$(grep -rhoE '\b(penstock|idset|hostlist)_[a-z_]+\(' "$prefix/include" | tr -d '(' | sort -u |
	grep -vE '^(idset_clear_all|hostlist_is_empty)$' | sed 's/$/@@PENSTOCK_0/')
diff <(echo "$declared") <(echo "$exported")
echo "exported functions: $(wc -l <<<"$exported")"
