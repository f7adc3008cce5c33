package hostdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestProcessesThatBeginTogetherMakeOneFabric(t *testing.T) {
	base := newBase(t)
	var all []*process
	for range 8 {
		all = append(all, start(t, self(t), "open", base, nil))
	}
	ids := make(map[string]int)
	for _, p := range all {
		ids[p.line(t)]++
	}
	id := identity(t, openDir(t, base))
	if len(ids) != 1 || ids[id] != 8 {
		t.Errorf("ids %v, want 8 times %s", ids, id)
	}
	onlyClaimFile(t, base)
}

// onlyClaimFile checks that the directory of a fabric has only the claim file.
func onlyClaimFile(t *testing.T, base string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(base, "default"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "claims-v2" {
		t.Fatalf("the directory holds %v", entries)
	}
	info, err := entries[0].Info()
	if err != nil || info.Size() != 0 || info.Mode() != 0o600 {
		t.Errorf("claim file: size %d, mode %v, %v", info.Size(), info.Mode(), err)
	}
	for _, dir := range []string{base, filepath.Join(base, "default")} {
		info, err := os.Lstat(dir)
		if err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s has mode %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestADirectoryThatIsNotPrivateIsRefused(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mkdir := func(path string, mode os.FileMode) {
		must(os.Mkdir(path, 0o700))
		must(os.Chmod(path, mode))
	}
	tests := []struct {
		name, text string
		make       func(base string)
	}{
		{"base open to others", "has mode 0755", func(base string) { mkdir(base, 0o755) }},
		{"base open to the group", "has mode 0710", func(base string) { mkdir(base, 0o710) }},
		{"base is a link to a good one", "symbolic link", func(base string) {
			mkdir(base+"-real", 0o700)
			must(os.Symlink(base+"-real", base))
		}},
		{"base is a dangling link", "symbolic link", func(base string) { must(os.Symlink("nowhere", base)) }},
		{"base is a file", "not a directory", func(base string) { must(os.WriteFile(base, nil, 0o700)) }},
		{"base is a fifo", "not a directory", func(base string) { must(syscall.Mkfifo(base, 0o700)) }},
		{"fabric open to others", "default of uid", func(base string) {
			mkdir(base, 0o700)
			mkdir(base+"/default", 0o777)
		}},
		{"fabric is a link", "symbolic link", func(base string) {
			mkdir(base, 0o700)
			mkdir(base+"/other", 0o700)
			must(os.Symlink("other", base+"/default"))
		}},
		{"claim file is a link", claimName, func(base string) {
			mkdir(base, 0o700)
			mkdir(base+"/default", 0o700)
			must(os.WriteFile(base+"/file", nil, 0o600))
			must(os.Symlink("../file", base+"/default/claims-v2"))
		}},
		{"claim file is a fifo", claimName, func(base string) {
			mkdir(base, 0o700)
			mkdir(base+"/default", 0o700)
			must(syscall.Mkfifo(base+"/default/claims-v2", 0o600))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			base := newBase(t)
			tt.make(base)
			d, err := Open(In(base, "default"), true)
			if err == nil {
				d.Close()
				t.Fatal("it was accepted")
			}
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%v: want EPERM or EACCES", err)
			}
			if !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), base) {
				t.Errorf("error %q, want %q and the path in it", err, tt.text)
			}
		})
	}
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	base := "/etc" // a directory of root
	if os.Geteuid() == 0 {
		base = newBase(t)
		if err := os.Mkdir(base, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(base, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(In(base, "default"), true)
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), base+" belongs to uid ") {
		t.Errorf("%v: want a permission error that says whose it is", err)
	}
}

func TestAnotherUserCannotAttach(t *testing.T) {
	exe, attr := asNobody(t)
	base := filepath.Join(filepath.Dir(exe), "base")
	openDir(t, base)
	got := start(t, exe, "open", base, attr).line(t)
	if !strings.Contains(got, base+" belongs to uid 0") || !strings.Contains(got, "uid "+strconv.Itoa(nobody)) ||
		!strings.Contains(got, syscall.EPERM.Error()) {
		t.Errorf("the other user got %q, want a permission error", got)
	}
	onlyClaimFile(t, base)
}

func TestPlaceDependsOnTheUidAlone(t *testing.T) {
	run, uid := t.TempDir(), os.Geteuid()
	own := filepath.Join(run, strconv.Itoa(uid))
	inTmp := "/tmp/ntbnet-" + strconv.Itoa(uid)
	if got := homeOf(run, "/tmp", uid).find(nil); got != inTmp {
		t.Errorf("without a directory in /run/user: %s", got)
	}
	if err := os.Symlink(t.TempDir(), own); err != nil {
		t.Fatal(err)
	}
	if got := homeOf(run, "/tmp", uid).find(nil); got != inTmp {
		t.Errorf("with a link in /run/user: %s", got)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := homeOf(run, "/tmp", uid).find(nil); got != filepath.Join(own, "ntbnet") {
		t.Errorf("with a directory in /run/user: %s", got)
	}

	// This is the only test that uses the real place.
	t.Setenv("TMPDIR", run)
	t.Setenv("XDG_RUNTIME_DIR", run)
	name := "test-" + strconv.Itoa(os.Getpid())
	d, err := Open(In(Find(), name), true)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(d.Path())
	defer d.Close()
	if want := filepath.Join(homeOf("/run/user", "/tmp", uid).find(nil), name); d.Path() != want {
		t.Errorf("the fabric is at %s, want %s", d.Path(), want)
	}
	if _, err := Open(In(Find(), "no/name"), true); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("bad name: %v, want EINVAL", err)
	}
}

func TestCloseLeavesNoDescriptor(t *testing.T) {
	base := newBase(t)
	openDir(t, base).Close()
	bad := newBase(t)
	if err := os.MkdirAll(bad+"/default", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(bad+"/default/claims-v2", 0o600); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("needs /proc: ", err)
		}
		return len(names)
	}
	before := count()
	for range 20 {
		d, err := Open(In(base, "default"), true)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := Open(In(bad, "default"), true); err == nil {
			t.Fatal("a fifo was accepted as the claim file")
		}
	}
	if got := count(); got != before {
		t.Errorf("%d descriptors, %d before", got, before)
	}
}
