//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
)

// onPort is a pod whose container serves the word on a host port, and releases it some time after SIGTERM. It writes this to the diary, and
// also if the port is in use.
func (d *diary) onPort(name, namespace, container, word string, port int32) string {
	script := fmt.Sprintf("trap 'sleep 0.5; kill $!; say %[1]s-ends; exit 0' TERM; say %[1]s; mkdir -p /tmp/w; echo %[1]s > /tmp/w/index.html; httpd -f -p 127.0.0.1:%[2]d -h /tmp/w & wait $!; say %[1]s-failed; exit 1", word, port)
	text := d.pod(name, "", d.writer(container, script, fmt.Sprintf("    ports: [{containerPort: %d}]", port)), "  hostNetwork: true")
	return strings.Replace(text, "{name: "+name+"}", "{name: "+name+", namespace: "+namespace+"}", 1)
}

// answer waits until a port of 127.0.0.1 answers with exactly this word; "" means that the port is closed.
func (in *instance) answer(port int32, want string) {
	in.t.Helper()
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	in.eventually(fmt.Sprintf("port %d says %q", port, want), func() error {
		r, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			if want == "" {
				return nil
			}
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && strings.TrimSpace(string(b)) != want {
			err = fmt.Errorf("it says %q", b)
		}
		return err
	})
}

// TestAPortOfTheMachineGoesFromOneContainerToTheNext: a container with another name, or in another namespace, takes over a host port. It is
// started only after the previous one has exited: otherwise it would find the port in use.
func TestAPortOfTheMachineGoesFromOneContainerToTheNext(t *testing.T) {
	in := newInstance(t)
	in.start()
	names, spaces := in.newDiary("names"), in.newDiary("spaces")
	one, two := ports.Take(t), ports.Take(t)
	in.put("names", names.onPort("names", "default", "old", "old", one))
	in.put("spaces", spaces.onPort("spaces", "default", "c", "here", two))
	in.answer(one, "old")
	in.answer(two, "here")
	before := in.ready("names")
	in.put("names", names.onPort("names", "default", "new", "new", one))
	in.put("spaces", spaces.onPort("spaces", "elsewhere", "c", "there", two))
	in.answer(one, "new")
	in.answer(two, "there")
	for name, container := range map[string]string{"names": "new", "spaces": "c"} {
		p := in.pod(name, "is ready anew", func(p corev1.Pod) bool {
			return isReady(p) && p.Status.ContainerStatuses[0].Name == container && (name == "names" || p.Namespace == "elsewhere")
		})
		if restarts(p) != 0 || len(p.Status.ContainerStatuses) != 1 {
			t.Errorf("%s: %s", name, brief(p))
		}
		if name == "names" && p.UID != before.UID {
			t.Errorf("the pod was replaced: %s", brief(p))
		}
	}
	in.eventually("only the pod of the new namespace is left", func() error {
		list, err := in.podList()
		if err == nil && len(list) != 2 {
			err = fmt.Errorf("%d pods", len(list))
		}
		return err
	})
	names.wait("old old-ends new")
	spaces.wait("here here-ends there")
}

// TestAPodWhosePortChanges changes the host port of a pod: to an unused one, to one of another pod, and to one of another process.
func TestAPodWhosePortChanges(t *testing.T) {
	in := newInstance(t)
	in.start()
	first, second, third := ports.Take(t), ports.Take(t), ports.Take(t)
	web := func(name string, port int32) string {
		return sleeper(name, fmt.Sprintf("mkdir -p /tmp/w; echo %s > /tmp/w/index.html; httpd -p 80 -h /tmp/w", name), fmt.Sprintf("    ports: [{containerPort: 80, hostPort: %d}]", port))
	}
	in.put("www", web("www", first))
	in.put("other", web("other", second))
	in.answer(first, "www")
	in.answer(second, "other")
	in.put("www", web("www", third))
	in.answer(third, "www")
	in.answer(first, "")
	before := in.ready("www")
	in.put("www", web("www", second))
	in.eventually("who has the port is named", func() error {
		out, err := in.run("describe", "pod", "www")
		if want := fmt.Sprintf("host port %d/TCP is taken by pod default/other; the pod continues unchanged", second); err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("%q is not in %s", want, out)
		}
		return err
	})
	in.explains("www", cause.HostPortPod, fmt.Sprintf("%d/TCP is taken by pod default/other", second))
	in.answer(third, "www")
	in.answer(second, "other")
	if now := in.ready("www"); containerID(now, "c") != containerID(before, "c") {
		t.Errorf("the pod was touched: %s", brief(now))
	}
	in.put("other", web("other", first)) // which gives the port up
	in.answer(second, "www")
	in.answer(first, "other")
	in.answer(third, "")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	taken := int32(l.Addr().(*net.TCPAddr).Port)
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := in.newDiary("host")
	in.put("host", d.onPort("host", "default", "c", "fine", third))
	in.answer(third, "fine")
	in.put("host", d.onPort("host", "default", "c", "late", taken))
	in.explains("host", cause.HostPortProcess, fmt.Sprintf("port 127.0.0.1:%d/TCP of this machine is used by", taken), filepath.Base(me)[:min(15, len(filepath.Base(me)))], fmt.Sprintf("pid %d", os.Getpid()))
	in.put("host", d.onPort("host", "default", "c", "again", third))
	in.answer(third, "again")
	if words := strings.Join(d.words(), " "); !strings.HasPrefix(words, "fine fine-ends late late-failed ") || !strings.HasSuffix(words, " again") {
		t.Errorf("the diary says %s", words)
	}
}
