package container

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/runner"
	"monopod/runner/ctrd/dirtest"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/record"
)

func TestMessagesOfContainersThatAreGoneAreRemoved(t *testing.T) {
	l := &Lifecycle{Index: record.NewIndex(), Dirs: layout.Dirs{Root: t.TempDir()}}
	pod := l.Dirs.PodDir("uid")
	now := dirtest.Write(t, filepath.Join(pod, "files/messages/new"), 10)
	l.Index.PutContainer(&record.Container{ID: "new", Meta: record.ContainerMeta{UID: "uid", Name: "c", MessagePath: now}})
	copied := dirtest.Write(t, l.Dirs.MessageCopy("uid", "new"), 10)
	for _, left := range []string{"files/messages/gone", "messages/gone"} {
		dirtest.Write(t, filepath.Join(pod, left), 10)
	}
	if err := l.CleanMessages("uid"); err != nil {
		t.Error(err)
	}
	if got, want := dirtest.Tree(t, pod), "files/messages/new messages/new"; got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	for _, rec := range l.Index.All() {
		if err := l.removeMessage(rec); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{now, copied} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	// A record never leads out of the pod's directory.
	outside := dirtest.Write(t, filepath.Join(l.Dirs.PodsDir(), "other"), 1)
	if err := l.removeMessage(&record.Container{ID: "x", Meta: record.ContainerMeta{UID: "uid", MessagePath: outside}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
}

func TestAMessageOutlivesTheMemoryItWasIn(t *testing.T) {
	l := &Lifecycle{Index: record.NewIndex(), Dirs: layout.Dirs{Root: t.TempDir()}}
	rec := &record.Container{ID: "id", Meta: record.ContainerMeta{UID: "uid", Name: "c", MessagePath: filepath.Join(l.Dirs.PodFilesDir("uid"), "messages", "id"), MessageLimit: 4}}
	path := l.Dirs.MessageCopy("uid", "id")
	dirtest.Write(t, path, 0)
	if err := os.WriteFile(path, []byte("0123"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := l.terminationMessage(t.Context(), rec, nil); got != "0123" {
		t.Errorf("got %q", got)
	}
	dirtest.Write(t, rec.Meta.MessagePath, 0)
	if err := os.WriteFile(rec.Meta.MessagePath, []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := l.terminationMessage(t.Context(), rec, nil); got != "ewer" {
		t.Errorf("got %q", got)
	}
}

func TestAMessageFromALogTakesLittleMemory(t *testing.T) {
	for _, limit := range []int{0, 1, 7, 2048} {
		b := tailBuffer{limit: limit}
		var all []byte
		for i, size := range []int{0, 1, 3, 5000, 2, 1 << 20, 2047, 10, 4096} {
			p := bytes.Repeat([]byte{'a' + byte(i)}, size)
			all = append(all, p...)
			if n, err := b.Write(p); n != size || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			if got, want := string(b.end()), string(all[max(0, len(all)-limit):]); got != want {
				t.Errorf("limit %d, write %d: %d bytes, want %d", limit, i, len(got), len(want))
			}
			if cap(b.text) > 8*limit+64 {
				t.Errorf("limit %d: it takes %d bytes", limit, cap(b.text))
			}
		}
	}
	// One line without an end, in as many entries as a log has room for.
	l := &Lifecycle{Index: record.NewIndex(), Dirs: layout.Dirs{Root: t.TempDir()}}
	var log bytes.Buffer
	for range 1000 {
		log.WriteString("2026-01-01T00:00:00.000000000Z stdout P " + strings.Repeat("x", 16<<10) + "\n")
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rec := &record.Container{ID: "id", Meta: record.ContainerMeta{UID: "uid", LogPath: path, MessageFromLogs: true, MessageLimit: 4096}}
	if got := l.terminationMessage(t.Context(), rec, &runner.Termination{ExitCode: 1}); got != strings.Repeat("x", logMessageBytes) {
		t.Errorf("a message of %d bytes", len(got))
	}
}
