package record

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

func fullLabels() ContainerLabels {
	at := time.Date(2026, 11, 20, 18, 0, 0, 123456789, time.UTC)
	return ContainerLabels{
		Owner:        "/var/lib/monopod",
		Key:          manifests.Key{Namespace: "default", Name: "web"},
		UID:          "uid",
		Name:         "main",
		SandboxID:    "sb",
		BootID:       "boot",
		Hash:         "h",
		ImageID:      "sha256:1",
		Image:        "sha256:2",
		VolumeImages: map[string]string{"v": "sha256:3", "w": "sha256:4"},
		Generation:   7,
		RestartCount: 7,
		BackOff:      80 * time.Second,
		Last:         &runner.Termination{ContainerID: "old", ExitCode: 1, Reason: runner.ReasonError, Message: "boom\n", StartedAt: at, FinishedAt: at},
		LogPath:      "/var/log/pods/x/7.log",
		StopSignal:   "SIGQUIT", Devices: []string{"example.com/dev=one", "example.com/dev=two"},
		MessagePath:     "/p",
		MessageLimit:    4096,
		MessageFromLogs: true,
		StartedAt:       at,
		StopSentAt:      at.Add(time.Second),
		StoppingAt:      at,
		StopCause:       runner.StopPostStart,
		PostStart:       runner.PostStartDone,
		Round:           2,
		Exit:            &runner.Termination{ContainerID: "id", ExitCode: 137, Reason: runner.ReasonOOMKilled, FinishedAt: at},
	}
}

func TestContainerLabelsComeBackAsTheyWere(t *testing.T) {
	for name, l := range map[string]ContainerLabels{
		"everything set": fullLabels(),
		"least":          {Owner: "/r", Key: manifests.Key{Namespace: "a", Name: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeContainerLabels(l.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(&l, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLabelsAlwaysFitContainerd(t *testing.T) {
	l := fullLabels()
	for name, msg := range map[string]string{
		"plain":         strings.Repeat("x", 5000),
		"runes":         strings.Repeat("é", 3000),
		"invalid utf-8": strings.Repeat("\xff", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			l.Exit = &runner.Termination{Message: msg}
			l.Last = &runner.Termination{Message: msg}
			for k, v := range l.Encode() {
				if err := labels.Validate(k, v); err != nil {
					t.Error(err)
				}
				if !utf8.ValidString(v) {
					t.Errorf("%s is not valid UTF-8", k)
				}
			}
		})
	}
}

func TestALongMessageKeepsItsEnd(t *testing.T) {
	got := fitLabel(labelExitMessage, strings.Repeat("x", 5000)+"the end")
	if !strings.HasSuffix(got, "the end") || len(got)+len(labelExitMessage) != maxLabel {
		t.Errorf("got %d bytes ending in %q", len(got), got[len(got)-10:])
	}
}

func TestLastBytesCutsOnlyBetweenRunes(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 5, "abc"}, {"abc", 2, "bc"}, {"aé", 1, ""}, {"aéb", 2, "b"}, {"", 3, ""}, {"abc", 0, ""},
	} {
		if got := LastBytes(c.in, c.n); got != c.want {
			t.Errorf("lastBytes(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestDamagedLabelsAreAnError(t *testing.T) {
	for _, k := range []string{labelRestartCount, labelBackOff, labelStartedAt, labelExit, labelLast} {
		l := fullLabels()
		m := l.Encode()
		m[k] = "{"
		if _, err := decodeContainerLabels(m); err == nil || !strings.Contains(err.Error(), k) {
			t.Errorf("%s: got %v", k, err)
		}
	}
}

func TestSandboxLabelsComeBackAsTheyWere(t *testing.T) {
	l := SandboxLabels{
		Owner: "/r", Key: manifests.Key{Namespace: "a", Name: "b"}, UID: "u", Source: "file", Hash: "h",
		State: Removing, BootID: "boot", Born: 90*time.Minute + 1, KeepFiles: true,
		Failed: runner.ReasonDeadlineExceeded, FailedAt: time.Date(2026, 11, 20, 18, 0, 0, 5, time.UTC),
		FailedMessage: "too much", FailedCause: cause.Cause{Kind: cause.Evicted, Resource: "inodes"}, Evictions: 3,
		Handler: "crun", Overhead: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("120Mi")},
	}
	if d := cmp.Diff(&l, DecodeSandboxLabels(l.Encode())); d != "" {
		t.Error(d)
	}
}

func TestTheFirstIDIsKeptInTheLabels(t *testing.T) {
	for _, first := range []uint32{0, 65536, 2147418112} {
		l := SandboxLabels{FirstID: first}
		if got := DecodeSandboxLabels(l.Encode()).FirstID; got != first {
			t.Errorf("%d became %d", first, got)
		}
	}
	if _, there := (&SandboxLabels{}).Encode()[labelFirstID]; there {
		t.Error("sandboxes without a user namespace have the label")
	}
}
