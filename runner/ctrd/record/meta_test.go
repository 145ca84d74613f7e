package record

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/sandbox"
	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

func fullContainer() ContainerMeta {
	at := time.Date(2026, 11, 20, 18, 0, 0, 123456789, time.UTC)
	return ContainerMeta{
		Owner:         "/var/lib/monopod",
		Key:           manifests.Key{Namespace: "default", Name: "web"},
		UID:           "uid",
		Name:          "main",
		SandboxID:     "sb",
		BootID:        "boot",
		Hash:          "h",
		Cgroup:        "/monopod/burstable/poduid",
		CPUs:          "1-2",
		ResourcesHash: "r",
		PodResources:  &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
		Resources:     &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}},
		Health:        runner.Health{Started: true, Since: at},
		ImageID:       "sha256:1",
		Image:         "sha256:2",
		VolumeImages:  map[string]string{"v": "sha256:3", "w": "sha256:4"},
		Generation:    7,
		RestartCount:  6,
		BackOff:       80 * time.Second,
		Last:          &runner.Termination{ContainerID: "old", ExitCode: 1, Reason: runner.ReasonError, Message: "boom\n", StartedAt: at, FinishedAt: at},
		LogPath:       "/var/log/pods/x/7.log",
		StopSignal:    "SIGQUIT", Devices: []string{"example.com/dev=one", "example.com/dev=two"},
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

func fullSandbox() SandboxMeta {
	return SandboxMeta{
		Owner: "/r", Key: manifests.Key{Namespace: "a", Name: "b"}, UID: "u", Source: "file", Hash: "h",
		State: Removing, BootID: "boot", Born: 90*time.Minute + 1, KeepFiles: true, Remade: true,
		Failed: runner.ReasonDeadlineExceeded, FailedAt: time.Date(2026, 11, 20, 18, 0, 0, 5, time.UTC),
		FailedMessage: strings.Repeat("too much", 1000), FailedCause: cause.Cause{Kind: cause.Evicted, Resource: "inodes"}, Evictions: 3,
		FirstID: 2147418112, Cgroup: "/monopod/podu", QOSClass: corev1.PodQOSGuaranteed, ResourcesHash: "r",
		Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Handler:   "crun", Overhead: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("120Mi")},
	}
}

// stored is what containerd returns of a container record.
func stored(t *testing.T, m ContainerMeta) containers.Container {
	t.Helper()
	ext, err := (&Container{Meta: m}).Extensions()
	if err != nil {
		t.Fatal(err)
	}
	return containers.Container{ID: "id", Labels: m.Labels(), Extensions: ext}
}

// TestFullRecordsSetEveryField keeps the other tests honest when a field is added.
func TestFullRecordsSetEveryField(t *testing.T) {
	for _, v := range []any{fullContainer(), fullSandbox()} {
		for r, i := reflect.ValueOf(v), 0; i < r.NumField(); i++ {
			if r.Field(i).IsZero() {
				t.Errorf("%s.%s is not set", r.Type(), r.Type().Field(i).Name)
			}
		}
	}
}

func TestContainerRecordsSurviveStorage(t *testing.T) {
	for name, m := range map[string]ContainerMeta{
		"all fields": fullContainer(),
		"few fields": {Owner: "/r", Key: manifests.Key{Namespace: "a", Name: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeContainer(stored(t, m))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, got.Meta); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestSandboxMetaSurvivesStorage(t *testing.T) {
	rec := sandboxOf("sb", Active)
	rec.Meta = fullSandbox()
	ext, err := rec.Extensions()
	if err != nil {
		t.Fatal(err)
	}
	got, err := MetaOf(sandbox.Sandbox{ID: "sb", Labels: rec.Meta.Labels(), Extensions: ext})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rec.Meta, got); d != "" {
		t.Error(d)
	}
}

// TestMessagesOfAnyTextCanBeStored: containerd refuses labels that are too long, and a record that is refused stops its pod.
func TestMessagesOfAnyTextCanBeStored(t *testing.T) {
	for name, msg := range map[string]string{
		"long":          strings.Repeat("x", 5000),
		"runes":         strings.Repeat("é", 3000),
		"invalid utf-8": strings.Repeat("\xff", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			m := fullContainer()
			m.Exit, m.Last = &runner.Termination{Message: msg}, &runner.Termination{Message: msg}
			c := stored(t, m)
			for k, v := range c.Labels {
				if err := labels.Validate(k, v); err != nil {
					t.Error(err)
				}
			}
			got, err := decodeContainer(c)
			if err != nil {
				t.Fatal(err)
			}
			if text := got.Meta.Exit.Message; !utf8.ValidString(text) || utf8.ValidString(msg) && text != msg {
				t.Errorf("read back %d bytes of %d", len(text), len(msg))
			}
		})
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
			t.Errorf("LastBytes(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

// TestADamagedContainerRecordKeepsItsPod: labels still name the pod, the sandbox and the images, so that it can be removed.
func TestADamagedContainerRecordKeepsItsPod(t *testing.T) {
	full := fullContainer()
	for name, damage := range map[string]func(c *containers.Container){
		"missing": func(c *containers.Container) { c.Extensions = nil },
		"no JSON": func(c *containers.Container) { c.Extensions[ExtContainer] = jsonAny{ExtContainer, []byte("{")} },
		"wrong type": func(c *containers.Container) {
			c.Extensions[ExtContainer] = jsonAny{ExtContainer, []byte(`{"backOff": "x", "round": 4}`)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := stored(t, full)
			damage(&c)
			got, err := decodeContainer(c)
			if err == nil || !strings.Contains(err.Error(), ExtContainer) {
				t.Errorf("error %v", err)
			}
			m := got.Meta
			if m.Owner != full.Owner || m.Key != full.Key || m.UID != full.UID || m.Name != full.Name || m.SandboxID != full.SandboxID || m.Image != full.Image || len(m.VolumeImages) != 2 {
				t.Errorf("got %+v", m)
			}
			if name == "wrong type" && m.Round != 4 {
				t.Error("the fields that can be read are lost")
			}
		})
	}
}
