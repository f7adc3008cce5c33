package archtest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// architecture is the document that has the picture and the table.
const architecture = "docs/packages.md"

// house is what the document says of the packages of this module, named by folder.
type house struct {
	floors  map[string]int      // from the picture, 0 at the top
	imports map[string][]string // from the table: what the package's code imports, of this module
}

var (
	floorLine = regexp.MustCompile(`^(\S.*?)?\s{2,}(\S.*)$`) // a name, if the floor begins here, and packages
	tableRow  = regexp.MustCompile("^\\| `([^`]+)` \\|[^|]*\\|([^|]*)\\|$")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

// readHouse reads the first block and the first table below the heading "The house".
func readHouse(text string) (h house, bad []string) {
	h = house{floors: map[string]int{}, imports: map[string][]string{}}
	_, text, _ = strings.Cut(text, "\n## The house\n")
	text, _, _ = strings.Cut(text, "\n## ")
	_, rest, _ := strings.Cut(text, "```\n")
	picture, rest, ok := strings.Cut(rest, "```\n")
	if !ok {
		return h, []string{architecture + ": no picture below the heading The house"}
	}
	floor := -1
	for line := range strings.Lines(picture) {
		m := floorLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			bad = append(bad, fmt.Sprintf("%s: not a floor: %q", architecture, line))
			continue
		}
		if m[1] != "" {
			floor++
		}
		for _, p := range strings.Fields(m[2]) {
			if _, twice := h.floors[p]; twice {
				bad = append(bad, fmt.Sprintf("%s: %s is on two floors", architecture, p))
			}
			h.floors[p] = floor
		}
	}
	for line := range strings.Lines(rest) {
		m := tableRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		if _, twice := h.imports[m[1]]; twice {
			bad = append(bad, fmt.Sprintf("%s: %s has two rows", architecture, m[1]))
		}
		h.imports[m[1]] = []string{}
		for _, q := range quoted.FindAllStringSubmatch(m[2], -1) {
			h.imports[m[1]] = append(h.imports[m[1]], q[1])
		}
	}
	return h, bad
}

// checkHouse compares picture and table with each other and with the packages.
// checkTable checks what the table does not allow.
func checkHouse(files []file, h house) []string {
	var bad []string
	report := func(format string, a ...any) {
		bad = append(bad, fmt.Sprintf("%s: "+format, append([]any{architecture}, a...)...))
	}
	used := map[string]map[string]bool{} // by package: what its code imports
	for _, f := range files {
		if f.syntax == nil {
			continue
		}
		if used[f.dir] == nil {
			used[f.dir] = map[string]bool{}
		}
		if f.isTest() {
			continue
		}
		for _, imp := range imports(f) {
			if within(imp, module) {
				used[f.dir][strings.TrimPrefix(strings.TrimPrefix(imp, module), "/")] = true
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(used)) {
		if _, ok := h.floors[p]; !ok {
			report("%s is on no floor of the picture", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(h.floors)) {
		if used[p] == nil {
			report("the picture has %s, which is no package", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(h.imports)) {
		if used[p] == nil {
			report("the table has %s, which is no package", p)
			continue
		}
		for _, imp := range h.imports[p] {
			if !used[p][imp] {
				report("%s does not import %s", p, imp)
			}
			if h.floors[imp] <= h.floors[p] {
				report("%s is not below %s", imp, p)
			}
		}
	}
	return bad
}
