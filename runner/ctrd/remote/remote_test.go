package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnAttemptThatHangs checks that only the first caller waits, done is called at the end, and a failure is reported later.
func TestAnAttemptThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, runs atomic.Int32
		m := NewMounter(func() { told.Add(1) })
		defer m.Close()
		release := make(chan error)
		try := func() (time.Duration, error) {
			began := time.Now()
			err := m.try("/target", "mount x", func(context.Context) error { runs.Add(1); return <-release })
			return time.Since(began), err
		}
		took, err := try()
		if err == nil || !strings.Contains(err.Error(), "mount x: no answer after 250ms") || took != patience {
			t.Errorf("%v after %s", err, took)
		}
		if took, err := try(); err == nil || took != 0 || runs.Load() != 1 {
			t.Errorf("%v after %s, %d runs", err, took, runs.Load())
		}
		if err := m.try("/other", "mount y", func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		release <- errors.New("refused")
		synctest.Wait()
		if told.Load() != 1 {
			t.Errorf("told %d times", told.Load())
		}
		if _, err := try(); err == nil || err.Error() != "mount x: refused" || runs.Load() != 1 {
			t.Errorf("%v, %d runs", err, runs.Load())
		}
		go func() { release <- nil }()
		if _, err := try(); err != nil || runs.Load() != 2 || told.Load() != 1 {
			t.Errorf("%v, %d runs, told %d times", err, runs.Load(), told.Load())
		}
	})
}

func TestAnAttemptEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMounter(func() {})
		defer m.Close()
		ends := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		_ = m.try("/t", "mount", ends)
		time.Sleep(attemptTimeout)
		synctest.Wait()
		if err := m.try("/t", "mount", ends); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestWhatIsUnderWayEndsWithThePod(t *testing.T) {
	pods := t.TempDir()
	target := Target(filepath.Join(pods, "uid"), "nfs", "v")
	check(t, os.MkdirAll(target, 0o700))
	m := NewMounter(func() {})
	defer m.Close()
	over := make(chan struct{})
	_ = m.try(target, "mount", func(ctx context.Context) error { <-ctx.Done(); close(over); return ctx.Err() })
	check(t, m.UnmountBelow(filepath.Join(pods, "uid")))
	<-over
	if _, err := os.Stat(target); err == nil {
		t.Error("there is still something to be mounted at")
	}
	// Directories with content are not removed.
	check(t, os.MkdirAll(filepath.Join(target, "data"), 0o700))
	if err := m.UnmountBelow(filepath.Join(pods, "uid")); err == nil {
		t.Error("removed what has content")
	}
}

func TestTheMountsOfTheMachineAreReadForPodsWithTargetsOnly(t *testing.T) {
	pod, reads := filepath.Join(t.TempDir(), "uid"), 0
	m := NewMounter(func() {})
	defer m.Close()
	m.mounts = func(mountinfo.FilterFunc) ([]*mountinfo.Info, error) { reads++; return nil, nil }
	check(t, m.UnmountBelow(pod))
	check(t, os.MkdirAll(filepath.Dir(Target(pod, "nfs", "v")), 0o700))
	check(t, m.UnmountBelow(pod))
	if reads > 0 {
		t.Errorf("read %d times for a pod without targets", reads)
	}
	check(t, os.Mkdir(Target(pod, "nfs", "v"), 0o700))
	check(t, m.UnmountBelow(pod))
	if reads != 1 {
		t.Errorf("read %d times for a pod with a target", reads)
	}
}

func TestNFSCommands(t *testing.T) {
	for _, tt := range []struct {
		source   corev1.NFSVolumeSource
		readOnly bool
		options  []string
		want     []string
	}{
		{source: corev1.NFSVolumeSource{Server: "nas", Path: "/x"}, want: []string{"nas:/x"}},
		{source: corev1.NFSVolumeSource{Server: "fd00::1", Path: "/x", ReadOnly: true}, want: []string{"[fd00::1]:/x", "-o", "ro"}},
		{source: corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/"}, readOnly: true, options: []string{"hard", "nfsvers=4"}, want: []string{"10.0.0.1:/", "-o", "hard,nfsvers=4,ro"}},
	} {
		from, args := nfsCommand(&tt.source, tt.readOnly, tt.options)
		if got := append([]string{from}, args...); !slices.Equal(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestSessionsOfLUNs(t *testing.T) {
	name := "iqn.2001-04.com.example:me"
	for _, tt := range []struct {
		source corev1.ISCSIVolumeSource
		want   session
	}{
		{corev1.ISCSIVolumeSource{TargetPortal: "1.2.3.4", IQN: "q"}, session{Portals: []string{"1.2.3.4:3260"}, IQN: "q", Iface: "default"}},
		{corev1.ISCSIVolumeSource{TargetPortal: "[::1]:1", Portals: []string{"[::1]:1", "::2", "host"}, IQN: "q", ISCSIInterface: "eth"}, session{Portals: []string{"[::1]:1", "[::2]:3260", "host:3260"}, IQN: "q", Iface: "eth"}},
		{corev1.ISCSIVolumeSource{TargetPortal: "h", IQN: "q", InitiatorName: &name}, session{Portals: []string{"h:3260"}, IQN: "q", Iface: "h:3260:v", Own: true}},
	} {
		l := LUN{Source: &tt.source, Volume: "v"}
		if got := l.session(); !slices.Equal(got.Portals, tt.want.Portals) || got.Iface != tt.want.Iface || got.Own != tt.want.Own || got.IQN != tt.want.IQN {
			t.Errorf("%+v, want %+v", got, tt.want)
		}
	}
}

// TestSessionsOnRecord ignores files that a power cut has truncated.
func TestSessionsOnRecord(t *testing.T) {
	dir := t.TempDir()
	want := session{Portals: []string{"h:3260"}, IQN: "q", Iface: "default"}
	for range 2 {
		check(t, want.write(filepath.Join(dir, sessionDir, "v")))
	}
	check(t, os.WriteFile(filepath.Join(dir, sessionDir, ".tmp-1"), []byte(`{"IQN": "half"}`), 0o600))
	check(t, os.Symlink("/dev/null", filepath.Join(dir, sessionDir, "v.device")))
	got := sessions(dir)
	if len(got) != 1 || !slices.Equal(got["v"].Portals, want.Portals) || got["v"].IQN != want.IQN || got["v"].Iface != want.Iface {
		t.Errorf("sessions are %+v, want %+v", got, want)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, sessionDir)); err != nil || len(entries) != 3 {
		t.Errorf("files: %v (%v)", entries, err)
	}
}

func TestAToolThatIsMissing(t *testing.T) {
	if _, err := tool("mount.of-no-kind", "the moon"); err == nil || err.Error() != "mount.of-no-kind is not on this machine: install the moon" {
		t.Error(err)
	}
	t.Setenv("PATH", "/nowhere")
	if path, err := tool("sh", "a shell"); err != nil || filepath.Base(path) != "sh" {
		t.Errorf("%q, %v", path, err)
	}
}

func TestCredentialsAreNotPrinted(t *testing.T) {
	err := withoutSecrets(errors.New("iscsiadm: bad value geheim"), map[string][]byte{"x": []byte("geheim"), "empty": nil})
	if strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
	if err := withoutSecrets(errors.New("denied"), map[string][]byte{"empty": nil}); err.Error() != "denied" {
		t.Error(err)
	}
}
