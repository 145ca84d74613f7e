package attach

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cli/lookup"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/loopback"
	"monopod/internal/program"
)

func TestPortsToForward(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}}}
	for text, want := range map[string]forwarded{
		"80":        {80, 80},
		"http":      {8080, 8080},
		"9000:80":   {9000, 80},
		"9000:http": {9000, 8080},
		":http":     {0, 8080},
		"0:80":      {0, 80},
	} {
		if got, err := parseForward(text, lookup.Reached{Pod: pod}); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"https": `"https" is neither a port`, "": `"" is neither a port`, "80:": `"" is neither a port`, "0": `"0" is neither a port`, "70000": `"70000" is neither a port`,
		"http:80": `"http" is not a port`, "-1:80": `"-1" is not a port`, "70000:80": `"70000" is not a port`,
	} {
		var usage program.UsageError
		if _, err := parseForward(text, lookup.Reached{Pod: pod}); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestAFreePortIsTheSameOnAllAddresses, and one of them that is taken is an error.
func TestAFreePortIsTheSameOnAllAddresses(t *testing.T) {
	t.Parallel()
	one, two, three := loopback.Address(), loopback.Address(), loopback.Address()
	all, err := listenOn(t.Context(), []string{one, two}, 0)
	defer func() {
		for _, ln := range all {
			_ = ln.Close()
		}
	}()
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	first, second := all[0].Addr().(*net.TCPAddr), all[1].Addr().(*net.TCPAddr)
	if first.Port == 0 || first.Port != second.Port || first.IP.Equal(second.IP) {
		t.Errorf("%v and %v", first, second)
	}
	more, err := listenOn(t.Context(), []string{three, two}, first.Port)
	if err == nil || !strings.Contains(err.Error(), "listen: ") || len(more) != 1 {
		t.Errorf("taken: %v, %v", more, err)
	}
	for _, ln := range more { // the caller closes what was opened before the error
		_ = ln.Close()
	}
	local, err := listenOn(t.Context(), []string{"localhost"}, 0)
	if err != nil || len(local) == 0 {
		t.Fatalf("one address of localhost is enough: %v, %v", local, err)
	}
	for _, ln := range local {
		if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%s", ln.Addr())
		}
		_ = ln.Close()
	}
}

func TestPlacesOfFiles(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]struct {
		pod, path string
		remote    bool
	}{
		"web:/etc": {"web", "/etc", true}, "data/web:etc": {"data/web", "etc", true}, "web:a:b": {"web", "a:b", true}, "web:": {"web", "", true},
		"file": {"file", "", false}, "./a:b": {"./a", "b", false}, "/a:b": {"/a", "b", false}, "../a:b": {"../a", "b", false}, "-": {"-", "", false},
	} {
		if pod, path, remote := SplitPlace(arg); pod != want.pod || path != want.path || remote != want.remote {
			t.Errorf("%s: %q %q %v", arg, pod, path, remote)
		}
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a": here + "/a", "a/": here + "/a/", "/b/../c/": "/c/", "": here} {
		if got, err := absolute(path); err != nil || got != want {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
}

// TestNothingThatBlocksIsCopied: a FIFO would be waited for.
func TestNothingThatBlocksIsCopied(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Reachable)
	d.Start()
	d.Ready("web")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{fifo, "/dev/zero"} {
		if r := d.Cmd("cp", file, "web:/x", "-c", "app"); r != clitest.Printed("", "monopod: "+file+": neither a regular file nor a directory\n", 1) {
			t.Errorf("%+v", r)
		}
	}
}

func TestLogsOfSeveralContainers(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}, InitContainers: []corev1.Container{{Name: "i"}}}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "data", Name: "two", Annotations: map[string]string{"kubectl.kubernetes.io/default-container": "d"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}, {Name: "d"}}}},
	}
	p := NewCommands(&program.Program{Stderr: &strings.Builder{}})
	for name, c := range map[string]struct {
		o    logsOptions
		want string
	}{
		"the default one of each": {logsOptions{}, "[pod/one/a] [pod/two/d] "},
		"one that is named":       {logsOptions{container: "c"}, "[pod/one/c] [pod/two/c] "},
		"all":                     {logsOptions{allContainers: true}, "[pod/one/a] [pod/one/b] [pod/one/i] [pod/two/c] [pod/two/d] "},
	} {
		got := ""
		for _, s := range p.logSources(&c.o, pods) {
			got += s.prefix()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	many := slices.Repeat([]logSource{{container: "a"}}, maxFollowed+1)
	var usage program.UsageError
	if err := p.manyLogs(t.Context(), nil, &logsOptions{follow: true}, nil, many); !errors.As(err, &usage) || !strings.Contains(err.Error(), "at most 20 logs, these are 21") {
		t.Errorf("%v", err)
	}
}
