package preload

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/regular"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/image/repair"
	"monopod/runner/ctrd/metatest"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustStamp(t *testing.T, path string) stamp {
	t.Helper()
	s, err := stampOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAVersionOfAnArchiveIsRecognized(t *testing.T) {
	dir := t.TempDir()
	path, link := write(t, filepath.Join(dir, "a.tar"), "one"), filepath.Join(dir, "b.tar")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	first := mustStamp(t, path)
	if !first.same(mustStamp(t, path)) || !first.same(mustStamp(t, link)) {
		t.Error("an unchanged file, or a link to it, is another version")
	}
	// It is the same after the record was stored and read.
	var stored stamp
	if b, err := json.Marshal(first); err != nil || json.Unmarshal(b, &stored) != nil || !stored.same(first) {
		t.Errorf("stored as %+v: %v", stored, err)
	}
	for name, change := range map[string]func() error{
		"another size": func() error { return os.WriteFile(path, []byte("three"), 0o600) },
		"another time": func() error { return os.Chtimes(path, time.Time{}, first.MTime.Add(time.Nanosecond)) },
		"another file with the same size and time": func() error {
			other := write(t, filepath.Join(dir, "other"), "one")
			return errors.Join(os.Chtimes(other, time.Time{}, first.MTime), os.Rename(other, path))
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if mustStamp(t, path).same(first) {
			t.Errorf("%s is not seen", name)
		}
	}
	fifo := filepath.Join(dir, "fifo.tar")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := stampOf(fifo); !errors.Is(err, regular.ErrSpecial) {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := stampOf(filepath.Join(dir, "missing.tar")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// preloader returns a Preloader of one directory, and the archives that it reports.
func preloader(t *testing.T) (p *Preloader, ctx context.Context, reported map[string][]string) {
	t.Helper()
	c, ctx := metatest.New(t)
	log := slog.New(slog.DiscardHandler)
	store := local.New(local.Config{Client: c, Snapshotter: metatest.Snapshotter, Log: log, OnFull: func(int64) {}})
	reported = map[string][]string{}
	return New(Config{
		Local: store, Repair: repair.New(repair.Config{Local: store, Log: log}), Dirs: []string{t.TempDir()}, Log: log,
		Record: func(path string, names []string) { reported[path] = names }, OnImport: func() {},
	}), ctx, reported
}

func TestImportedArchivesAreRememberedWithTheirImages(t *testing.T) {
	p, ctx, reported := preloader(t)
	metatest.Image(ctx, t, p.Local.Client, "/a", "a", "b")
	metatest.Artifact(ctx, t, p.Local.Client, "rules", "application/json")
	at := stamp{Size: 3, MTime: time.Unix(7, 8).UTC(), Inode: 9}
	path, elsewhere, gone := filepath.Join(p.Dirs[0], "a.tar"), "/elsewhere/b.tar", filepath.Join(p.Dirs[0], "gone.tar")
	for path, names := range map[string][]string{path: {"a", "b", "rules"}, elsewhere: {"b"}, gone: {"a", "removed"}} {
		if err := p.remember(ctx, path, imported{stamp: at, Names: names}); err != nil {
			t.Fatal(err)
		}
	}
	for key, value := range map[string]string{"other": "{}", labelPrefix + "x": "{}", labelKey("/moved.tar"): `{"path": "/another.tar", "names": []}`} {
		if err := p.Local.Client.NamespaceService().SetLabel(ctx, "test", key, value); err != nil {
			t.Fatal(err)
		}
	}
	known := p.remembered(ctx)
	if got := slices.Sorted(maps.Keys(known)); !slices.Equal(got, slices.Sorted(slices.Values([]string{elsewhere, path}))) || !known[path].same(at) || !slices.Equal(known[path].Names, []string{"a", "b", "rules"}) {
		t.Errorf("remembered: %+v", known)
	}
	if len(reported) != 1 || !slices.Equal(reported[path], []string{"a", "b", "rules"}) {
		t.Errorf("reported: %v", reported)
	}
}

func TestAnArchiveThatCannotBeImportedDoesNotStopTheOthers(t *testing.T) {
	p, ctx, reported := preloader(t)
	imports := 0
	p.OnImport = func() { imports++ }
	for name, text := range map[string]string{"a.tar": "no archive", "b.tar": "neither", "known.tar": "imported", "settling.tar": "half"} {
		write(t, filepath.Join(p.Dirs[0], name), text)
	}
	known, settling := filepath.Join(p.Dirs[0], "known.tar"), filepath.Join(p.Dirs[0], "settling.tar")
	r := &run{
		Preloader: p, known: map[string]imported{known: {stamp: mustStamp(t, known)}}, settling: map[string]time.Time{settling: time.Now()},
	}
	err := r.scan(ctx)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 2 || len(reported) != 2 || imports != 0 || r.retry != MinRetry {
		t.Errorf("%v; reported %v, %d imports, retry after %v", err, reported, imports, r.retry)
	}
	if _, tried := r.known[settling]; tried {
		t.Error("a file that is being written was imported")
	}
	if err := r.scan(ctx); err == nil || r.retry != 2*MinRetry {
		t.Errorf("again: %v, retry after %v", err, r.retry)
	}
	for path := range reported {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.scan(ctx); err != nil || r.retry != 0 {
		t.Errorf("they were removed: %v, retry after %v", err, r.retry)
	}
}

func TestAFileIsReadWhenItHasNotChangedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &run{settling: map[string]time.Time{"old": time.Now()}}
		time.Sleep(Settle / 2)
		r.settling["new"] = time.Now()
		time.Sleep(Settle / 2)
		r.settle()
		if _, left := r.settling["new"]; !left || len(r.settling) != 1 {
			t.Errorf("settling: %v", r.settling)
		}
	})
}

func TestRetriesThatAreRequestedTwiceAreOne(t *testing.T) {
	p := New(Config{})
	p.Retry()
	p.Retry()
	if len(p.retryNow) != 1 {
		t.Errorf("%d retries", len(p.retryNow))
	}
}
