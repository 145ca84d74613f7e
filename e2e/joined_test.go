//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
)

// TestKubectlShowsAControlPlaneThatItsNodeRuns runs the commands of the example's README, with the real programs of Kubernetes.
func TestKubectlShowsAControlPlaneThatItsNodeRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	t.Parallel()
	p := newPlane(t)
	p.inside = planeNetwork(t)
	in := newInstance(t, joining(t, p.etc))
	p.join(in)
	p.env = append(p.env, "NODE_NAME=e2e", "READY_DEADLINE=3m", "PATH="+filepath.Join(p.dir, "programs")+":"+os.Getenv("PATH"))
	programs := apitest.Programs(t)
	for _, dir := range []string{"programs", "programs-1.37.3"} {
		p.link(programs, dir, "kubectl")
	}
	p.link(programs, "programs", planeOrder()...)
	p.link(programs, "programs-1.37.3", "etcd", "kube-apiserver")
	in.start()

	typed := commands(t, "../examples/control-plane/README.md")
	upgrade := slices.IndexFunc(typed, func(line string) bool { return strings.Contains(line, "images.sh") && strings.Contains(line, "1.37.3") })
	for _, line := range typed[:upgrade] {
		out := p.does(line)
		for _, want := range map[string][]string{"get nodes": {`(?m)^e2e +Ready `}, "get pods": planeMirrors(), "logs": {"."}}[kubectlVerb(line)] {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: no %s in\n%s", line, want, out)
			}
		}
	}
	before := p.runs(in, "3.7.0", "v1.37.2")
	p.kubectl("create configmap -n default kept --from-literal=word=stored")

	p.testDeleted(in, before)
	p.testKilled(in, before)
	p.testUpgradeOfWhatReports(in, before)
	p.does("examples/control-plane/down.sh --purge")
}

// joining returns the configuration lines of the README, for another directory.
func joining(t *testing.T, etc string) string {
	t.Helper()
	b, err := os.ReadFile("../examples/control-plane/README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```yaml\n(kubeconfig: .*?)```").FindSubmatch(b)
	if found == nil {
		t.Fatal("the README does not say how to join")
	}
	return strings.ReplaceAll(strings.TrimSpace(string(found[1])), "/etc/kubernetes", etc)
}

// planeMirrors returns patterns of kubectl's lines for the mirror pods of the components.
func planeMirrors() (lines []string) {
	for _, name := range planeOrder() {
		lines = append(lines, `(?m)^kube-system +`+name+`-e2e +1/1 +Running `)
	}
	return lines
}

// kubectlVerb returns the verb of a kubectl command line.
func kubectlVerb(line string) string {
	found := regexp.MustCompile(`^kubectl .*\.conf (get nodes|get pods|logs)`).FindStringSubmatch(line)
	if found == nil {
		return ""
	}
	return found[1]
}

// link puts programs into a directory of the plane.
func (p *plane) link(from, dir string, names ...string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(p.dir, dir, name)); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *plane) kubectl(line string) string {
	p.t.Helper()
	return p.does("kubectl --kubeconfig kubernetes/admin.conf " + line)
}

// shown waits until the API server shows the mirror pod of a component as ready, with a new uid, and returns that.
func (p *plane) shown(in *instance, name, container, otherThan string) (uid string) {
	p.t.Helper()
	in.eventually("the mirror of "+name+" is there", func() error {
		out, code := p.sh("kubectl --kubeconfig kubernetes/admin.conf get pod -n kube-system " + name + `-e2e -o 'jsonpath={.metadata.uid} {.status.phase} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].containerID}'`)
		fields := strings.Fields(out)
		if code != 0 || len(fields) != 4 || fields[0] == otherThan || fields[1] != "Running" || fields[2] != "true" || fields[3] != container {
			return fmt.Errorf("%d: %s, want container %s", code, out, container)
		}
		uid = fields[0]
		return nil
	})
	return uid
}

// testDeleted: objects deleted from the API server come back, and no pod is affected.
func (p *plane) testDeleted(in *instance, before map[string]corev1.Pod) {
	t := p.t
	t.Helper()
	uids := map[string]string{}
	for _, name := range planeOrder() {
		uids[name] = p.shown(in, name, containerID(before[name], name), "")
	}
	p.kubectl("delete pod -n kube-system etcd-e2e kube-apiserver-e2e --wait=false")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		uids[name] = p.shown(in, name, containerID(before[name], name), uids[name])
	}
	p.kubectl("delete node e2e --wait=false")
	p.does("examples/control-plane/join.sh")
	for _, name := range planeOrder() {
		p.shown(in, name, containerID(before[name], name), "")
	}
	after := p.runs(in, "3.7.0", "v1.37.2")
	for _, name := range planeOrder() {
		if containerID(after[name], name) != containerID(before[name], name) {
			t.Errorf("%s was restarted", name)
		}
	}
}

// testKilled: the API server that monopod reports to is killed; after its restart, it shows its own pod again.
func (p *plane) testKilled(in *instance, before map[string]corev1.Pod) {
	p.t.Helper()
	was := containerID(before["kube-apiserver"], "kube-apiserver")
	if err := syscall.Kill(in.processOf(strings.TrimPrefix(was, "containerd://")), syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	again := in.pod("kube-apiserver", "runs again", func(now corev1.Pod) bool { return isReady(now) && containerID(now, "kube-apiserver") != was })
	p.shown(in, "kube-apiserver", containerID(again, "kube-apiserver"), "")
}

// testUpgradeOfWhatReports: etcd and kube-apiserver are upgraded, and the stored data is kept.
func (p *plane) testUpgradeOfWhatReports(in *instance, before map[string]corev1.Pod) {
	t := p.t
	t.Helper()
	const images = "--image etcd=localhost/etcd:3.7.1 --image kube-apiserver=localhost/kube-apiserver:v1.37.3"
	p.does("examples/control-plane/images.sh " + images + " programs-1.37.3")
	p.does("examples/control-plane/upgrade.sh " + images)
	all, err := in.pods()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if containerID(all[name], name) == containerID(before[name], name) {
			t.Errorf("%s has not been restarted", name)
		}
	}
	for _, name := range planeOrder() {
		p.shown(in, name, containerID(all[name], name), "")
	}
	if out := p.kubectl("get configmap -n default kept -o 'jsonpath={.data.word}'"); out != "stored" {
		t.Errorf("what was stored is %q", out)
	}
	if out := p.kubectl("exec -n kube-system etcd-e2e -- etcd --version"); !strings.Contains(out, "etcd Version: ") {
		t.Errorf("exec in etcd: %s", out)
	}
}
