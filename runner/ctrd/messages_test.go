package ctrd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
)

// write makes a file, and the directories that it is in.
func write(t testing.TB, path string, size int) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// diskRuntime has a pod with uid "uid" and volume "v", and no containerd.
func diskRuntime(t testing.TB) (*Runtime, *sandboxRecord) {
	t.Helper()
	r := bareRuntime()
	r.cfg.RootDirectory, r.cfg.PodLogsDir = t.TempDir(), t.TempDir()
	rec := &sandboxRecord{
		ID: "s", Labels: sandboxLabels{UID: "uid", State: sandboxActive, Key: manifests.Key{Namespace: "ns", Name: "web"}},
		Pod: &manifests.Pod{Object: &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		}}}},
	}
	r.index.putSandbox(rec)
	return r, rec
}

func TestAllThatAPodHasOnDiskCounts(t *testing.T) {
	r, rec := diskRuntime(t)
	const mi = 1 << 20
	pod := r.podDir("uid")
	for name, size := range map[string]int{
		"containers/c/0123": 1, "containers/c/4567": 1, "messages/id": 1, // messages
		"etc-hosts": 1, "hostname": 1, "resolv.conf": 1, // of an earlier version
		"volumes/kubernetes.io~empty-dir/v.old/f":  1, // before an edit of its medium: a container may still have it
		"volumes/kubernetes.io~empty-dir/gone/f":   1, // an edit has taken it out
		"volumes/kubernetes.io~empty-dir/memory/f": 1, // not yet in memory
		"volumes/kubernetes.io~empty-dir/v/f":      9, // counts as a volume
		"volumes/kubernetes.io~nfs/x/f":            9, // is another's
		"image-volumes/id/f":                       9, // counts with the layer
	} {
		write(t, filepath.Join(pod, name), size*mi)
	}
	got, err := r.otherSizes(t.Context(), rec)
	if err != nil || got.Bytes < 9*mi || got.Bytes > 9*mi+128<<10 {
		t.Errorf("%d KiB, %v, want 9 MiB", got.Bytes>>10, err)
	}
	for _, name := range []string{"c/0.log", "c/0.log.20260101-000000", "gone/3.log.20260101-000000.gz"} {
		write(t, filepath.Join(r.podLogDir(rec.Labels.Key, "uid"), name), mi)
	}
	logs, err := r.logSizes(t.Context(), rec)
	if err != nil || len(logs) != 2 || logs["c"].Bytes < 2*mi || logs["gone"].Bytes < mi {
		t.Errorf("logs: %v, %v", logs, err)
	}
}

func TestMessagesOfContainersThatAreGoneAreRemoved(t *testing.T) {
	r, _ := diskRuntime(t)
	pod := r.podDir("uid")
	former := write(t, filepath.Join(pod, "containers/c/0123"), 10)
	now := write(t, filepath.Join(pod, "files/messages/new"), 10)
	for id, path := range map[string]string{"old": former, "new": now} {
		r.index.putContainer(&containerRecord{ID: id, Labels: containerLabels{UID: "uid", Name: "c", MessagePath: path}})
	}
	copied := write(t, r.messageCopy("uid", "new"), 10)
	for _, left := range []string{"containers/c/4567", "containers/d/89ab", "files/messages/gone", "messages/gone"} {
		write(t, filepath.Join(pod, left), 10)
	}
	if err := r.cleanMessages("uid"); err != nil {
		t.Error(err)
	}
	if got, want := treeOf(t, pod), "containers/c/0123 files/messages/new messages/new"; got != want {
		t.Errorf("left: %s, want %s", got, want)
	}
	for _, rec := range r.index.all() {
		if err := r.removeMessage(rec); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{former, now, copied} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	// A record never leads out of the pod's directory.
	outside := write(t, filepath.Join(r.podsDir(), "other"), 1)
	if err := r.removeMessage(&containerRecord{ID: "x", Labels: containerLabels{UID: "uid", MessagePath: outside}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
}

func TestAMessageOutlivesTheMemoryItWasIn(t *testing.T) {
	r, _ := diskRuntime(t)
	rec := &containerRecord{ID: "id", Labels: containerLabels{UID: "uid", Name: "c", MessagePath: filepath.Join(r.podFilesDir("uid"), "messages", "id"), MessageLimit: 4}}
	path := r.messageCopy("uid", "id")
	write(t, path, 0)
	if err := os.WriteFile(path, []byte("0123"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.terminationMessage(t.Context(), rec, nil); got != "0123" {
		t.Errorf("got %q", got)
	}
	write(t, rec.Labels.MessagePath, 0)
	if err := os.WriteFile(rec.Labels.MessagePath, []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.terminationMessage(t.Context(), rec, nil); got != "ewer" {
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
	r, _ := diskRuntime(t)
	var log bytes.Buffer
	for range 1000 {
		log.WriteString("2026-01-01T00:00:00.000000000Z stdout P " + strings.Repeat("x", 16<<10) + "\n")
	}
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rec := &containerRecord{ID: "id", Labels: containerLabels{UID: "uid", LogPath: path, MessageFromLogs: true, MessageLimit: 4096}}
	if got := r.terminationMessage(t.Context(), rec, &runner.Termination{ExitCode: 1}); got != strings.Repeat("x", logMessageBytes) {
		t.Errorf("a message of %d bytes", len(got))
	}
}
