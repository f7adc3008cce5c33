package archtest

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	mdBlock   = regexp.MustCompile("(?ms)^```.*?^```")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
)

// checkLinks finds links of documents to files and headings that do not exist.
func checkLinks(files []file) []string {
	headings := map[string]map[string]bool{} // by file; folders, and files without headings, have none
	for _, f := range files {
		headings[f.path] = map[string]bool{}
		for d := f.dir; d != "."; d = path.Dir(d) {
			headings[d] = nil
		}
		if path.Ext(f.path) != ".md" {
			continue
		}
		for _, m := range mdHeading.FindAllStringSubmatch(mdBlock.ReplaceAllString(string(f.text), ""), -1) {
			slug := notInSlug.ReplaceAllString(strings.ToLower(m[1]), "")
			headings[f.path][strings.ReplaceAll(slug, " ", "-")] = true
		}
	}
	var bad []string
	for _, f := range files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		for _, m := range mdLink.FindAllStringSubmatch(mdBlock.ReplaceAllString(string(f.text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := f.path
			if m[1] != "" {
				target = path.Join(f.dir, m[1])
			}
			if known, ok := headings[target]; !ok || m[2] != "" && !known[m[2]] {
				bad = append(bad, fmt.Sprintf("%s: %s leads nowhere", f.path, m[0][1:]))
			}
		}
	}
	return bad
}
