//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/e2e/corpus"
	"monopod/manifests"
	"monopod/manifests/decode"
)

// planeAddress is the address of the control plane. It exists only in network namespaces of tests.
const planeAddress = "192.0.2.10"

// planeOrder is the order in which the components are updated.
func planeOrder() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// plane runs the scripts of examples/control-plane with directories of its own.
type plane struct {
	t *testing.T
	// dir is the working directory; etc, data and images are KUBERNETES_DIR, ETCD_DIR and PRELOAD_DIR of the scripts.
	dir, etc, data, images string
	env                    []string
	// inside is a prefix for each command.
	inside []string
}

func newPlane(t *testing.T) *plane {
	t.Helper()
	dir := t.TempDir()
	p := &plane{t: t, dir: dir, etc: filepath.Join(dir, "kubernetes"), data: filepath.Join(dir, "etcd"), images: filepath.Join(dir, "images")}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	bin := binaries(t)
	p.env = append(os.Environ(),
		"KUBERNETES_DIR="+p.etc, "ETCD_DIR="+p.data, "PRELOAD_DIR="+p.images, "ADDRESS="+planeAddress, "NODE_NAME=cp1",
		"MONOPOD="+filepath.Join(bin, "monopod-client"), "MKIMAGE="+filepath.Join(bin, "mkimage"), "MONOPOD_SOCKET="+filepath.Join(dir, "no.sock"),
	)
	return p
}

// sh runs a shell command line, and returns its output and exit code.
func (p *plane) sh(line string) (string, int) {
	p.t.Helper()
	args := append(slices.Clone(p.inside), "bash", "-c", line)
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*patience)
	defer cancel()
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = patience
	c.Dir, c.Env = p.dir, p.env
	began := time.Now()
	out, err := c.CombinedOutput()
	p.t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), line)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%s: %v", line, err)
	}
	return string(out), c.ProcessState.ExitCode()
}

// does runs a command line that must succeed.
func (p *plane) does(line string) string {
	p.t.Helper()
	out, code := p.sh(line)
	if code != 0 {
		p.t.Fatalf("%s: exit code %d\n%s", line, code, out)
	}
	return out
}

// refuses runs a command line that must fail and print says.
func (p *plane) refuses(line string, code int, says string) {
	p.t.Helper()
	if out, got := p.sh(line); got != code || !strings.Contains(out, says) {
		p.t.Errorf("%s: exit code %d, want %d and %q:\n%s", line, got, code, says, out)
	}
}

// tree returns the content of a directory: modes and contents by path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = info.Mode().String()
		if d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		all[path] += fmt.Sprintf(" %x", sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// readCertificate reads the first certificate of a file.
func readCertificate(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no certificate: %s", data)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *plane) file(name string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.etc, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// signed verifies a certificate against an authority.
func (p *plane) signed(crt []byte, ca string, usage x509.ExtKeyUsage) *x509.Certificate {
	p.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(readCertificate(p.t, p.file(ca)))
	c := readCertificate(p.t, crt)
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		p.t.Errorf("%s: %v", c.Subject, err)
	}
	return c
}

func TestControlPlaneKeysAndCertificates(t *testing.T) {
	p := newPlane(t)
	p.does("examples/control-plane/pki.sh")
	serves := []string{"cp1", "localhost", planeAddress, "127.0.0.1"}
	for _, want := range []struct {
		file, ca, subject string
		usage             x509.ExtKeyUsage
		names             []string
	}{
		{"apiserver", "ca", "CN=kube-apiserver", x509.ExtKeyUsageServerAuth, append([]string{"kubernetes.default.svc.cluster.local", "10.96.0.1"}, serves...)},
		{"apiserver-kubelet-client", "ca", "CN=kube-apiserver-kubelet-client,O=system:masters", x509.ExtKeyUsageClientAuth, nil},
		{"front-proxy-client", "front-proxy-ca", "CN=front-proxy-client", x509.ExtKeyUsageClientAuth, nil},
		{"etcd/server", "etcd/ca", "CN=cp1", x509.ExtKeyUsageServerAuth, serves},
		{"etcd/server", "etcd/ca", "CN=cp1", x509.ExtKeyUsageClientAuth, serves},
		{"etcd/peer", "etcd/ca", "CN=cp1", x509.ExtKeyUsageServerAuth, serves},
		{"etcd/peer", "etcd/ca", "CN=cp1", x509.ExtKeyUsageClientAuth, serves},
		{"etcd/healthcheck-client", "etcd/ca", "CN=kube-etcd-healthcheck-client", x509.ExtKeyUsageClientAuth, nil},
		{"apiserver-etcd-client", "etcd/ca", "CN=kube-apiserver-etcd-client", x509.ExtKeyUsageClientAuth, nil},
	} {
		crt := p.file("pki/" + want.file + ".crt")
		c := p.signed(crt, "pki/"+want.ca+".crt", want.usage)
		if c.Subject.String() != want.subject || c.IsCA {
			t.Errorf("%s is for %s", want.file, c.Subject)
		}
		for _, name := range want.names {
			if err := c.VerifyHostname(name); err != nil {
				t.Errorf("%s: %v", want.file, err)
			}
		}
		if _, err := tls.X509KeyPair(crt, p.file("pki/"+want.file+".key")); err != nil {
			t.Errorf("%s: %v", want.file, err)
		}
	}
	for file, subject := range map[string]string{
		"admin": "CN=kubernetes-admin,O=system:masters", "controller-manager": "CN=system:kube-controller-manager", "scheduler": "CN=system:kube-scheduler",
		"kubelet": "CN=system:node:cp1,O=system:nodes",
	} {
		p.kubeconfig(file+".conf", subject)
	}
	key, _ := pem.Decode(p.file("pki/sa.key"))
	pub, _ := pem.Decode(p.file("pki/sa.pub"))
	private, err1 := x509.ParsePKCS8PrivateKey(key.Bytes)
	public, err2 := x509.ParsePKIXPublicKey(pub.Bytes)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if k, ok := private.(*ecdsa.PrivateKey); !ok || !k.PublicKey.Equal(public) {
		t.Error("sa.pub is not that of sa.key")
	}
	before := tree(t, p.etc)
	for path, mode := range before {
		if !strings.HasPrefix(mode, "-rw------- ") && mode[0] == '-' || strings.HasPrefix(path, filepath.Join(p.etc, "pki")) && mode[0] == 'd' && mode != "drwx------" {
			t.Errorf("%s can be read by others: %s", path, mode)
		}
	}

	// A second run changes nothing; missing files are recreated with the existing key.
	p.does("examples/control-plane/pki.sh")
	same(t, "files after a second run", flat(tree(t, p.etc)), flat(before))
	p.does("rm kubernetes/pki/apiserver.crt kubernetes/admin.conf && examples/control-plane/pki.sh")
	p.kubeconfig("admin.conf", "CN=kubernetes-admin,O=system:masters")
	if _, err := tls.X509KeyPair(p.file("pki/apiserver.crt"), p.file("pki/apiserver.key")); err != nil {
		t.Error(err)
	}
	after := tree(t, p.etc)
	for path, was := range before {
		renewed := strings.HasSuffix(path, "/apiserver.crt") || strings.HasSuffix(path, "/admin.conf") || strings.HasSuffix(path, "example")
		if (after[path] == was) == renewed {
			t.Errorf("%s: renewed %v", path, !renewed)
		}
	}
}

func flat(all map[string]string) []string {
	var lines []string
	for k, v := range all {
		lines = append(lines, k+" "+v)
	}
	slices.Sort(lines)
	return lines
}

// kubeconfig reads a kubeconfig as strictly as kubectl does.
func (p *plane) kubeconfig(name, subject string) {
	p.t.Helper()
	var k struct {
		APIVersion     string `json:"apiVersion"`
		Kind           string `json:"kind"`
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Name    string `json:"name"`
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Contexts []struct {
			Name    string `json:"name"`
			Context struct {
				Cluster string `json:"cluster"`
				User    string `json:"user"`
			} `json:"context"`
		} `json:"contexts"`
		Users []struct {
			Name string `json:"name"`
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.UnmarshalStrict(p.file(name), &k); err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	if len(k.Clusters) != 1 || len(k.Contexts) != 1 || len(k.Users) != 1 {
		p.t.Fatalf("%s: %+v", name, k)
	}
	cluster, user, current := k.Clusters[0], k.Users[0], k.Contexts[0]
	if k.APIVersion != "v1" || k.Kind != "Config" || current.Name != k.CurrentContext || current.Context.Cluster != cluster.Name || current.Context.User != user.Name {
		p.t.Errorf("%s: %+v", name, k)
	}
	if cluster.Cluster.Server != "https://"+planeAddress+":6443" || !bytes.Equal(cluster.Cluster.CA, p.file("pki/ca.crt")) {
		p.t.Errorf("%s is for %s", name, cluster.Cluster.Server)
	}
	if c := p.signed(user.User.Certificate, "pki/ca.crt", x509.ExtKeyUsageClientAuth); c.Subject.String() != subject {
		p.t.Errorf("%s is of %s", name, c.Subject)
	}
	if _, err := tls.X509KeyPair(user.User.Certificate, user.User.Key); err != nil {
		p.t.Errorf("%s: %v", name, err)
	}
}

// rollouts reads the manifests and returns the images in the order of updates in the group.
func (p *plane) rollouts() (images []string) {
	p.t.Helper()
	p.does(`"$MONOPOD" validate kubernetes/manifests`)
	type member struct {
		manifests.Rollout
		name, image string
	}
	var group []member
	for _, name := range planeOrder() {
		path := filepath.Join(p.etc, "manifests", name+".yaml")
		content, err := decode.All(path, p.file("manifests/"+name+".yaml"), decode.Options{Source: "file"})
		if err != nil || len(content.Pods) != 1 {
			p.t.Fatalf("%s: %v", name, err)
		}
		object := content.Pods[0].Object
		r, err := manifests.PodRollout(object)
		if err != nil || r.Group != "control-plane" || r.AutoRollback == nil || !*r.AutoRollback {
			p.t.Errorf("%s: %+v %v", name, r, err)
		}
		group = append(group, member{Rollout: r, name: object.Name, image: object.Spec.Containers[0].Image})
	}
	slices.SortStableFunc(group, func(a, b member) int {
		if a.Order != b.Order {
			return a.Order - b.Order
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, m := range group {
		names, images = append(names, m.name), append(images, m.image)
	}
	same(p.t, "order", names, planeOrder())
	return images
}

func TestControlPlaneManifests(t *testing.T) {
	p := newPlane(t)
	const images = "--registry registry.example/k8s --version v1.37.2 --etcd-version 3.7.0-0"
	p.does("examples/control-plane/render.sh " + images + " --image kube-scheduler=registry.example/mine/scheduler:7 --soak=0s")
	same(t, "images", p.rollouts(), []string{
		"registry.example/k8s/etcd:3.7.0-0", "registry.example/k8s/kube-apiserver:v1.37.2", "registry.example/k8s/kube-controller-manager:v1.37.2", "registry.example/mine/scheduler:7",
	})
	for _, name := range planeOrder() {
		text := string(p.file("manifests/" + name + ".yaml"))
		for _, left := range []string{"registry.k8s.io", "path: /etc", "path: /var", "=node", "30s"} {
			if strings.Contains(text, left) {
				t.Errorf("%s has %s still", name, left)
			}
		}
	}
	before := tree(t, p.etc)
	p.does("examples/control-plane/render.sh " + images + " --image kube-scheduler=registry.example/mine/scheduler:7 --soak 0s")
	same(t, "files after a second run", flat(tree(t, p.etc)), flat(before))
	p.refuses("examples/control-plane/render.sh "+images, 1, "kube-scheduler.yaml: there already, and not the same")
	same(t, "files after one that was refused", flat(tree(t, p.etc)), flat(before))
}

// TestControlPlaneOfKubeadm: manifests of kubeadm are accepted unchanged, and become an update group by adding lines.
func TestControlPlaneOfKubeadm(t *testing.T) {
	p := newPlane(t)
	if err := os.MkdirAll(filepath.Join(p.etc, "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for _, f := range corpus.Open(t) {
		for _, name := range planeOrder() {
			machine := "c1"
			if name == "kube-scheduler" {
				machine = "c2"
			}
			if strings.HasSuffix(f.Name, "/kubeadm-v1.36-generated-"+machine+"-"+name+".yaml") {
				written[name] = string(f.Data)
				if err := os.WriteFile(filepath.Join(p.etc, "manifests", name+".yaml"), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(written) != len(planeOrder()) {
		t.Fatalf("only %d manifests of kubeadm", len(written))
	}
	p.does(`"$MONOPOD" validate kubernetes/manifests`)
	p.refuses("examples/control-plane/render.sh --registry r.example --version v1 --etcd-version 3", 1, "there already, and not the same")
	p.does("examples/control-plane/group.sh --ready-deadline 3m")
	p.rollouts()
	for name, was := range written {
		var kept []string
		for line := range strings.SplitSeq(string(p.file("manifests/"+name+".yaml")), "\n") {
			if !strings.HasPrefix(line, "    monopod.dev/") && (line != "  annotations:" || strings.Contains(was, line)) {
				kept = append(kept, line)
			}
		}
		if strings.Join(kept, "\n") != was {
			t.Errorf("%s is not what it was but for annotations", name)
		}
	}
	before := tree(t, p.etc)
	p.does("examples/control-plane/group.sh")
	same(t, "files after a second run", flat(tree(t, p.etc)), flat(before))
}

func TestControlPlaneScriptsSayWhatIsWrong(t *testing.T) {
	p := newPlane(t)
	const render = "examples/control-plane/render.sh --registry r.example --version v1 --etcd-version 3 "
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"examples/control-plane/pki.sh --addresses 192.0.2.1", 2, "there is no flag --addresses"},
		{"examples/control-plane/pki.sh --address", 2, "--address needs a value"},
		{"examples/control-plane/pki.sh --address 300.0.0.1", 1, "300.0.0.1 is not an IPv4 address"},
		{"examples/control-plane/pki.sh --address 127.0.0.1", 1, "no address that kube-apiserver can advertise"},
		{"examples/control-plane/pki.sh --node 'a b'", 1, "a b is not a name of a machine"},
		{"examples/control-plane/pki.sh --service-cidr 10.96.0.0", 1, "is not a range of Services"},
		{"examples/control-plane/down.sh --purge=no", 2, "--purge takes no value"},
		{"examples/control-plane/down.sh --help=yes", 2, "--help takes no value"},
		{"examples/control-plane/down.sh --timeout soon", 1, "soon is not a duration"},
		{"examples/control-plane/up.sh --timeout 0s", 1, "within 0s nothing can be done"},
		{"examples/control-plane/pki.sh more", 2, "more is one argument too many"},
		{"KUBERNETES_DIR=relative examples/control-plane/pki.sh", 1, "relative is not an absolute path"},
		{"mkdir path && ln -s $(command -v dirname) path/ && PATH=$PWD/path /bin/bash examples/control-plane/pki.sh", 1, "openssl is needed, and is not installed"},
		{"examples/control-plane/render.sh --registry r.example --version v1", 2, "which image has etcd?"},
		{render + "--image scheduler=x", 2, "one of etcd kube-apiserver kube-controller-manager kube-scheduler, not scheduler=x"},
		{render + "--image 'etcd=a|b'", 1, "a|b is not a name of an image"},
		{render + "--soak soon", 1, "soon is not a duration"},
		{"examples/control-plane/images.sh", 2, "name archives, or a directory"},
		{"examples/control-plane/images.sh no.tar", 1, "there is no no.tar"},
		{"examples/control-plane/images.sh examples", 1, "none of etcd kube-apiserver"},
		{"examples/control-plane/images.sh examples/doc.go", 1, "examples/doc.go is no archive"},
		{"mkdir programs; touch programs/etcd; examples/control-plane/images.sh programs", 2, "what is the image with programs/etcd to be called?"},
		{"examples/control-plane/images.sh --image etcd=e:1 programs", 1, "programs/etcd is no program"},
		{"examples/control-plane/up.sh", 1, "kubernetes/manifests/etcd.yaml; render.sh or kubeadm make it"},
		{"examples/control-plane/health.sh", 1, "kubernetes/manifests/etcd.yaml; render.sh or kubeadm make it"},
		{"examples/control-plane/down.sh", 1, "no.sock"},
		{render, 0, "the manifests are in"},
		{"examples/control-plane/up.sh", 1, "no.sock"},
		{"examples/control-plane/join.sh", 1, "no.sock"},
		{"examples/control-plane/upgrade.sh", 2, "what is to be changed?"},
		{"examples/control-plane/upgrade.sh --version v2", 1, "no.sock"},
		{"grep -c :v1$ kubernetes/manifests/kube-apiserver.yaml", 0, "1"}, // not touched
		{"examples/control-plane/pki.sh", 0, "keys and certificates are in"},
		{"examples/control-plane/pki.sh --address 192.0.2.11", 1, "apiserver.crt is not for 192.0.2.11"},
		{"mv kubernetes/pki/apiserver.key away; examples/control-plane/pki.sh", 1, "but no " + p.etc + "/pki/apiserver.key"},
		{"cp kubernetes/pki/sa.key kubernetes/pki/apiserver.key; examples/control-plane/pki.sh", 1, "apiserver.key is not the key of"},
		{"mv away kubernetes/pki/apiserver.key; mv kubernetes/pki/ca.key away; examples/control-plane/pki.sh", 0, "keys and certificates"}, // the authority is elsewhere
		{"cp kubernetes/pki/sa.pub . && openssl pkey -in kubernetes/pki/apiserver.key -pubout -out kubernetes/pki/sa.pub && examples/control-plane/pki.sh", 1, "sa.pub is not the public key of"},
		{"cat sa.pub >>kubernetes/pki/sa.pub && examples/control-plane/pki.sh", 0, "keys and certificates"}, // an older key is accepted, too
		{"mv kubernetes/pki/sa.key . && examples/control-plane/pki.sh", 1, "but no " + p.etc + "/pki/sa.key"},
		{"mv sa.key kubernetes/pki && rm kubernetes/pki/sa.pub && examples/control-plane/pki.sh && cmp sa.pub kubernetes/pki/sa.pub", 0, "keys and certificates"},
		{"rm kubernetes/pki/apiserver.crt; examples/control-plane/pki.sh", 1, "without " + p.etc + "/pki/ca.key it cannot be made"},
		{"cd kubernetes/pki && cp etcd/peer.crt apiserver.crt && cp etcd/peer.key apiserver.key && cd ../.. && examples/control-plane/pki.sh", 1, "apiserver.crt was not signed by"},
	} {
		p.refuses(c.line, c.code, c.says)
	}
	for _, script := range []string{"pki", "render", "images", "up", "health", "upgrade", "group", "join", "down"} {
		if out := p.does("examples/control-plane/" + script + ".sh --help"); !strings.Contains(out, script+".sh") || strings.Contains(out, "set -e") {
			t.Errorf("%s.sh --help: %s", script, out)
		}
	}
}

// fakes lets the scripts run a fake monopod that accepts every command. When asked for the pod etcd, it fails as often as the variable
// SILENT defines, and then prints the variable ANSWER. All components are healthy.
func (p *plane) fakes() {
	p.t.Helper()
	dir := filepath.Join(p.dir, "fakes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for name, script := range map[string]string{
		"curl": "",
		"monopod": `[ "$1 $2 $5" = "get pod etcd" ] || exit 0
echo asked >>asked
[ "$(wc -l <asked)" -gt "${SILENT:-0}" ] || { echo nobody answers >&2; exit 1; }
echo "$ANSWER"
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	p.env = append(p.env, "MONOPOD=monopod", "PATH="+dir+":"+os.Getenv("PATH"))
}

// TestControlPlaneWaitsForAnswers: an upgrade succeeds only if the daemon reports it, and there is a timeout.
func TestControlPlaneWaitsForAnswers(t *testing.T) {
	p := newPlane(t)
	p.fakes()
	p.does("examples/control-plane/render.sh --registry r.example --version v1 --etcd-version 3")
	const settled, onTrial, takenBack = "'{}'", `'"monopod.dev/update": "x"'`, `'"monopod.dev/rollback": "x"'`
	for _, c := range []struct {
		silent  int
		answer  string
		timeout string
		code    int
		says    string
	}{
		{0, settled, "1m", 0, "is well"},
		{1, settled, "1m", 0, "is well"},
		{1, takenBack, "1m", 1, ""},
		{1000, settled, "100ms", 2, "nobody answers"},
		{0, onTrial, "100ms", 2, ""},
	} {
		p.refuses(fmt.Sprintf("rm -f asked; SILENT=%d ANSWER=%s examples/control-plane/up.sh --timeout %s", c.silent, c.answer, c.timeout), c.code, c.says)
	}
}

// TestControlPlanePurgeTakesItsOwn: files that existed before the scripts ran, or replaced those of the scripts, are not removed.
func TestControlPlanePurgeTakesItsOwn(t *testing.T) {
	p := newPlane(t)
	p.fakes()
	p.etc = filepath.Join(p.dir, "far", "away", "kubernetes") // two levels are missing
	p.env = append(p.env, "KUBERNETES_DIR="+p.etc)
	const bring = "examples/control-plane/pki.sh && examples/control-plane/render.sh --registry r.example --version v1 --etcd-version 3"
	const purge = "examples/control-plane/down.sh --purge"
	p.does(bring)
	p.does("touch etcd/stored; echo '# edited' >>far/away/kubernetes/manifests/etcd.yaml; " + purge)
	p.does("[ ! -e far ] && [ ! -e etcd ]")

	p.does(bring)
	p.does(`mkdir images && echo mine >images/mine.tar && echo old >images/old.tar
		echo new >old.tar; echo first >made.tar; echo first >replaced.tar
		examples/control-plane/images.sh images/mine.tar old.tar made.tar replaced.tar
		echo second >made.tar; examples/control-plane/images.sh made.tar && cmp made.tar images/made.tar
		echo other >images/replaced.tar; echo other >far/away/kubernetes/pki/ca.key; rm far/away/kubernetes/pki/ca.crt
		mv etcd aside; mkdir etcd; echo stored >etcd/stored`)
	out := p.does(purge)
	var left []string
	for _, dir := range []string{p.data, p.etc, p.images} {
		for path := range tree(t, dir) {
			left = append(left, strings.TrimPrefix(path, p.dir+"/"))
		}
	}
	slices.Sort(left)
	same(t, "files that are left", left, []string{
		"etcd", "etcd/stored", "far/away/kubernetes", "far/away/kubernetes/pki", "far/away/kubernetes/pki/ca.key", "images", "images/mine.tar", "images/old.tar", "images/replaced.tar",
	})
	for _, name := range []string{p.data, p.etc + "/pki/ca.key", p.images + "/replaced.tar"} {
		if !strings.Contains(out, name+" stays: it is not what these scripts have made\n") {
			t.Errorf("%s is not named:\n%s", name, out)
		}
	}
}

// planeNetwork creates a network namespace that has the address of the control plane, and returns the prefix for commands in it.
func planeNetwork(t *testing.T) []string {
	t.Helper()
	name := fmt.Sprintf("monopod-cp-%d", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "add", name)
	t.Cleanup(func() { ip("netns", "delete", name) })
	ip("-netns", name, "link", "set", "lo", "up")
	ip("-netns", name, "address", "add", planeAddress+"/32", "dev", "lo")
	return []string{"nsenter", "--net=/run/netns/" + name}
}

// programs creates a directory with stand-ins for the programs of a version; those in unwell report that they are unhealthy.
func (p *plane) programs(dir, version, unwell string) {
	p.t.Helper()
	standin, err := os.ReadFile(filepath.Join(binaries(p.t), "standin"))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range planeOrder() {
		how := ""
		if name == unwell {
			how = " unwell"
		}
		if err := os.WriteFile(filepath.Join(p.dir, dir, name), append(slices.Clone(standin), "\nSTANDIN "+version+how+"\n"...), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
}

// moments returns when a component started and when it became ready, in nanoseconds. Its log may also have lines about connections that
// clients have closed, such as a component that ends while it connects.
func (p *plane) moments(in *instance, name string) (started, ready int64) {
	p.t.Helper()
	out, err := in.run("logs", "-n", "kube-system", name)
	found := regexp.MustCompile(`(?s)^started (\d+)\n(?:.*\n)?ready (\d+)\n`).FindStringSubmatch(out)
	if err != nil || found == nil {
		p.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	started, _ = strconv.ParseInt(found[1], 10, 64)
	ready, _ = strconv.ParseInt(found[2], 10, 64)
	return started, ready
}

// runs checks the running versions, and returns the pods.
func (p *plane) runs(in *instance, etcd, kubernetes string) map[string]corev1.Pod {
	p.t.Helper()
	all, err := in.pods()
	if err != nil || len(all) != len(planeOrder()) {
		p.t.Fatalf("%d pods: %v", len(all), err)
	}
	for _, name := range planeOrder() {
		c, version := all[name].Status.ContainerStatuses, kubernetes
		if name == "etcd" {
			version = etcd
		}
		if len(c) != 1 || !strings.HasSuffix(c[0].Image, name+":"+version) || !isReady(all[name]) {
			p.t.Errorf("%s does not run %s: %s", name, version, brief(all[name]))
		}
	}
	return all
}

// TestControlPlaneExample runs the commands of the example's README, with stand-ins for the programs of Kubernetes.
func TestControlPlaneExample(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	p := newPlane(t)
	p.inside = planeNetwork(t)
	in := newInstance(t)
	p.join(in)
	in.start()
	p.programs("programs", "1.37.2", "")
	p.programs("programs-1.37.3", "1.37.3", "")
	p.programs("programs-1.37.4", "1.37.4", "kube-apiserver")

	typed := slices.DeleteFunc(commands(t, "../examples/control-plane/README.md"), isJoining) // stand-ins know no nodes
	upgraded, removed := slices.IndexFunc(typed, func(s string) bool { return strings.Contains(s, "upgrade.sh") }), slices.IndexFunc(typed, func(s string) bool { return strings.Contains(s, "down.sh") })
	if upgraded < 4 || removed != upgraded+1 {
		t.Fatalf("the README has %q", typed)
	}
	for _, line := range typed[:upgraded-1] {
		p.does(line)
	}
	p.runs(in, "3.7.0", "v1.37.2")
	p.answers()

	for _, line := range typed[upgraded-1 : removed] {
		p.does(line)
	}
	before := p.runs(in, "3.7.1", "v1.37.3")
	var last int64
	for _, name := range planeOrder() {
		started, ready := p.moments(in, name)
		if started < last {
			t.Errorf("%s was started %d ns before the one before it was ready", name, last-started)
		}
		last = ready
	}
	p.answers()
	p.broken(in, before)

	for i, line := range typed[removed:] {
		p.does(line)
		if all, err := in.pods(); err != nil || len(all) > 0 {
			t.Errorf("after %s: %d pods: %v", line, len(all), err)
		}
		if _, err := os.Stat(filepath.Join(p.data, "versions")); i == 0 && err != nil {
			t.Errorf("after %s: %v", line, err)
		}
	}
	for _, dir := range []string{p.etc, p.data} {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(p.images, "*kube*")); len(left) > 0 {
		t.Errorf("archives are left: %v", left)
	}
}

// join configures the scripts for an instance, which runs in the network of the control plane.
func (p *plane) join(in *instance) {
	p.t.Helper()
	bin := p.t.TempDir()
	for _, program := range []string{"monopod", "monopod-client"} {
		script := "#!/bin/sh\nexec " + strings.Join(p.inside, " ") + " " + filepath.Join(in.bin, program) + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(bin, program), []byte(script), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	in.bin = bin
	p.images = filepath.Join(in.dir, "images")
	p.env = append(p.env, "PRELOAD_DIR="+p.images, "MONOPOD_SOCKET="+filepath.Join(in.state, "monopod.sock"), "READY_DEADLINE=1m", "SOAK=500ms")
}

// isJoining reports whether a line of the README is about the node, which needs real programs.
func isJoining(line string) bool {
	return strings.Contains(line, "join.sh") || strings.HasPrefix(line, "kubectl ")
}

// answers requests each component, and checks the answer.
func (p *plane) answers() {
	p.t.Helper()
	out := p.does("examples/control-plane/health.sh")
	for _, url := range []string{"http://127.0.0.1:2381/readyz", "https://" + net.JoinHostPort(planeAddress, "6443") + "/readyz", "https://127.0.0.1:10257/healthz", "https://127.0.0.1:10259/readyz"} {
		if !strings.Contains(out, url+" is well\n") {
			p.t.Errorf("%s is not among the answers:\n%s", url, out)
		}
	}
}

// broken upgrades to a version whose kube-apiserver is never Ready.
func (p *plane) broken(in *instance, before map[string]corev1.Pod) {
	t := p.t
	t.Helper()
	// it is to fail soon; the annotation alone restarts nothing
	p.does("sed -i 's/ready-deadline: 1m/ready-deadline: 4s/' kubernetes/manifests/kube-apiserver.yaml && examples/control-plane/up.sh")
	written := tree(t, filepath.Join(p.etc, "manifests"))
	p.does("examples/control-plane/images.sh --registry localhost --version v1.37.4 --etcd-version 3.7.2 programs-1.37.4")
	p.refuses("examples/control-plane/upgrade.sh --version v1.37.4 --etcd-version 3.7.2", 1, "the upgrade has failed; the manifests and all pods are as they were before")
	same(t, "manifests", flat(tree(t, filepath.Join(p.etc, "manifests"))), flat(written))
	after := p.runs(in, "3.7.1", "v1.37.3")
	for _, name := range planeOrder() {
		if same := containerID(after[name], name) == containerID(before[name], name); !same && name != "etcd" && name != "kube-apiserver" {
			t.Errorf("%s was touched", name)
		}
	}
	if b, err := os.ReadFile(filepath.Join(p.data, "versions")); err != nil || string(b) != "1.37.2\n1.37.3\n1.37.4\n1.37.3\n" {
		t.Errorf("etcd has run as %q: %v", b, err)
	}
	for name, outcome := range map[string]string{"etcd": "Reverted", "kube-apiserver": "Failed", "kube-controller-manager": "Reverted", "kube-scheduler": "Reverted"} {
		out, err := in.run("history", "pod", "-n", "kube-system", name)
		if err != nil || !strings.Contains(out, outcome) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	p.answers()
}
