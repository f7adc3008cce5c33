package flags

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// version returns the line that --version prints.
func version(command string, info *debug.BuildInfo) string {
	set := make(map[string]string)
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	release, commit := info.Main.Version, "unknown"
	if release == "" {
		release = "(devel)"
	}
	if hash := set["vcs.revision"]; hash != "" {
		commit = fmt.Sprintf("%.12s", hash)
	}
	if set["vcs.modified"] == "true" {
		commit += " with changes"
	}
	return fmt.Sprintf("%s %s, commit %s, %s %s/%s\n", command, release, commit, info.GoVersion, set["GOOS"], set["GOARCH"])
}

// Version returns the version of this program, as --version prints it.
func Version(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return command
	}
	return VersionOf(command, info)
}

// VersionOf is Version for another program, built as info says.
func VersionOf(command string, info *debug.BuildInfo) string {
	return strings.TrimSpace(version(command, info))
}
