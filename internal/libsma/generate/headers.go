package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed shmem.h.txt
var headerText string // with one line for each generated part

// header returns shmem.h.
func header(fs []function) string {
	r := strings.NewReplacer("@PROTOTYPES@\n", prototypes(fs, ""), "@LISTS@\n", lists(), "@C11@\n", generics(), "@CXX@\n", overloads())
	return generated + r.Replace(headerText)
}

//go:embed shmemx.h.txt
var extensionsText string // with one line for the generated part

// extended matches the functions, and generic functions, that Sandia OpenSHMEM has as extensions.
var extended = regexp.MustCompile(`^(ctx_)?([a-z0-9]+_)?(ib(put|get)[0-9]*|sum_(in|ex)scan|signal_(set|add))$`)

// extensions returns shmemx.h.
func extensions(fs []function) string {
	text := ""
	define := func(name string) { text += fmt.Sprintf("#define shmemx_%s shmem_%[1]s\n", name) }
	for _, f := range fs {
		if name, ok := f.bare(); ok && extended.MatchString(name) {
			define(name)
		}
	}
	for _, f := range genericFamilies() {
		if extended.MatchString(f.name) {
			define(f.name)
		}
	}
	return generated + strings.Replace(extensionsText, "@NAMES@\n", text, 1)
}

// profilingHeader returns pshmem.h.
func profilingHeader(fs []function) string {
	return generated + `/* The functions of OpenSHMEM by the names that a profiling library calls. */
#ifndef PSHMEM_H
#define PSHMEM_H

#include <shmem.h>

#ifdef __cplusplus
extern "C" {
#endif

` + prototypes(fs, "p") + `
#ifdef __cplusplus
}
#endif

#endif
`
}

// prototypes returns the declarations of the functions, with a prefix to the name.
func prototypes(fs []function, prefix string) (text string) {
	chapter := ""
	for _, f := range fs {
		if _, ok := f.bare(); !ok && prefix != "" {
			continue
		}
		if f.chapter != chapter {
			chapter = f.chapter
			text += "\n/* " + chapter + " */\n"
		}
		end := ";"
		if f.deprecated && prefix == "" {
			end = " SHMEM_OLD_;"
		}
		if f.name == "shmem_global_exit" {
			end = " SHMEM_NORETURN_;"
		}
		text += fmt.Sprintf("%s%s%s(%s)%s\n", space(f.ret), prefix, f.name, f.params, end)
	}
	return text
}

// space returns a type with a blank behind it, unless it ends in a star.
func space(t string) string {
	if strings.HasSuffix(t, "*") {
		return t
	}
	return t + " "
}

// sets returns the sets that generic functions use, in the order of the table.
func sets() (all []set) {
	seen := map[string]bool{}
	for _, f := range genericFamilies() {
		if !seen[f.types.name] {
			seen[f.types.name] = true
			all = append(all, f.types)
		}
	}
	return all
}

// genericFamilies returns the families for which there are type-generic functions.
func genericFamilies() (all []family) {
	for _, c := range chapters() {
		for _, f := range c.families {
			if len(f.types.types) > 0 && f.generic != "-" {
				all = append(all, f)
			}
		}
	}
	return all
}

// lists returns a macro for each set of types, which calls a macro with each distinct type.
func lists() (text string) {
	for _, s := range sets() {
		text += fmt.Sprintf("#define SHMEM_%s_(M) %s\n", s.name, expand(s, "M"))
	}
	return text
}

// generics returns the macros for C11. The first pointer chooses the function.
func generics() (text string) {
	for _, s := range sets() {
		var cases, consts []string
		for _, t := range s.distinct() {
			cases = append(cases, fmt.Sprintf("%s *: A##%s##B", t.c, t.name))
			consts = append(consts, fmt.Sprintf("const %s *: A##%s##B", t.c, t.name))
		}
		text += fmt.Sprintf("#define SHMEM_%s_CASES_(A, B) %s\n", s.name, strings.Join(cases, ", "))
		text += fmt.Sprintf("#define SHMEM_%s_CONST_(A, B) %s\n", s.name, strings.Join(consts, ", "))
	}
	for _, f := range genericFamilies() {
		cases := func(prefix string) string {
			c := fmt.Sprintf("SHMEM_%s_CASES_(%s, _%s)", f.types.name, prefix, f.name)
			if strings.HasPrefix(f.params, "const ") {
				c += fmt.Sprintf(", SHMEM_%s_CONST_(%s, _%s)", f.types.name, prefix, f.name)
			}
			return c
		}
		choice := "_Generic((SHMEM_1_(__VA_ARGS__, 0)), " + cases("shmem_") + ")"
		switch {
		case strings.HasPrefix(f.params, "shmem_team_t"):
			choice = "_Generic((SHMEM_2_(__VA_ARGS__, 0, 0)), " + cases("shmem_") + ")"
		case f.ctx:
			choice = "_Generic((SHMEM_1_(__VA_ARGS__, 0)), shmem_ctx_t: _Generic((SHMEM_2_(__VA_ARGS__, 0, 0)), " +
				cases("shmem_ctx_") + ", default: SHMEM_NO_TYPE_), " + cases("shmem_") + ")"
		}
		text += fmt.Sprintf("#define shmem_%s(...) %s(__VA_ARGS__)\n", f.name, choice)
	}
	return text
}

// overloads returns the functions for C++.
func overloads() (text string) {
	for _, f := range genericFamilies() {
		macro := "SHMEM_CXX_" + f.name + "_"
		define := func(prefix, params string) string {
			return fmt.Sprintf(" inline %sshmem_%s(%s) { return %s(%s); }", space(strings.ReplaceAll(f.ret, "TYPE", "T")), f.name,
				strings.ReplaceAll(params, "TYPE", "T"), prefix+"##N##_"+f.name, strings.Join(arguments(params), ", "))
		}
		text += "#define " + macro + "(T, N)" + define("shmem_", f.params)
		if f.ctx {
			text += define("shmem_ctx_", "shmem_ctx_t ctx, "+f.params)
		}
		list := fmt.Sprintf("SHMEM_%s_(%s)\n", f.types.name, macro)
		if f.name == "wait_until" {
			// The deprecated function for long has C linkage and the same parameters.
			list = strings.ReplaceAll(expand(f.types, macro), macro+"(long, long) ", "") + "\n"
		}
		text += "\n" + list + "#undef " + macro + "\n"
	}
	return text
}

// expand returns the calls of a macro with each distinct type of a set.
func expand(s set, macro string) string {
	var items []string
	for _, t := range s.distinct() {
		items = append(items, fmt.Sprintf("%s(%s, %s)", macro, t.c, t.name))
	}
	return strings.Join(items, " ")
}

// arguments returns the names of parameters.
func arguments(params string) (names []string) {
	for _, p := range strings.Split(params, ",") {
		i := strings.LastIndexAny(p, " *")
		names = append(names, p[i+1:])
	}
	return names
}
