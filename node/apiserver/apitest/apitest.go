// Package apitest runs a real etcd and a real kube-apiserver on loopback for tests: with certificates for whom a test
// wants to be, and with a proxy before it that is slow, cuts connections, or lets nothing through. For tests only.
//
// It owns the processes it starts and ends them with the test.
package apitest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patience is how long the two programs may take to be ready.
const Patience = 90 * time.Second

// Options of a Server.
type Options struct {
	// Programs is the directory with etcd and kube-apiserver; empty: MONOPOD_KUBERNETES, else .cache/kubernetes of this tree.
	Programs string
	// VerifyNodes has the API server believe only nodes with a serving certificate of CA; else it believes any.
	VerifyNodes bool
	// Flags are further ones of kube-apiserver.
	Flags []string
}

// Server is a kube-apiserver with its etcd.
type Server struct {
	t    testing.TB
	opts Options
	Dir  string
	CA   *Authority
	// Address is host:port of the API.
	Address string

	etcdPeer, etcdClient string
	etcd, api            *process
	// others are the programs of RunControllers.
	others []*process
	admin  *http.Client
}

// Start runs both programs and returns when the API is ready. They end with the test.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	if opts.Programs == "" {
		opts.Programs = Programs(t)
	}
	// not t.TempDir: a killed etcd may still write
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, opts: opts, Dir: dir, CA: NewAuthority(t)}
	t.Cleanup(func() {
		for _, p := range s.others {
			p.stop()
		}
		s.Stop()
		s.etcd.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.Address, s.etcdClient, s.etcdPeer = address(t), address(t), address(t)
	s.write("ca.crt", s.CA.PEM())
	s.CA.Issue(t, Request{Name: "kube-apiserver", Server: true}).Write(t, s.path("server"))
	s.CA.Issue(t, Request{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}}).Write(t, s.path("kubelet-client"))
	s.CA.Issue(t, Request{Name: "service-accounts"}).Write(t, s.path("sa"))
	admin := s.CA.Issue(t, Request{Name: "admin", Groups: []string{"system:masters"}})
	s.write("tokens.csv", []byte("joining-token,system:bootstrap:abcdef,1,\"system:bootstrappers\"\n"))
	s.admin = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.CA.Pool(), Certificates: []tls.Certificate{admin.TLS(t)}}}}
	s.etcd = s.run("etcd", "--data-dir="+s.path("etcd"), "--listen-client-urls=http://"+s.etcdClient, "--advertise-client-urls=http://"+s.etcdClient,
		"--listen-peer-urls=http://"+s.etcdPeer, "--initial-advertise-peer-urls=http://"+s.etcdPeer, "--initial-cluster=default=http://"+s.etcdPeer,
		"--unsafe-no-fsync", "--log-level=error")
	s.Start()
	return s
}

// Programs is the directory with the programs of Kubernetes, which the Makefile makes.
func Programs(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("MONOPOD_KUBERNETES"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	if out, err := exec.Command("make", "-C", dir, "kubernetes").CombinedOutput(); err != nil {
		t.Fatalf("make kubernetes: %v\n%s", err, out)
	}
	return filepath.Join(dir, ".cache", "kubernetes")
}

func (s *Server) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *Server) write(name string, b []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Start runs the API server again, after Stop, and returns when it is ready.
func (s *Server) Start() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.Address)
	args := []string{
		"--etcd-servers=http://" + s.etcdClient, "--bind-address=" + host, "--secure-port=" + port, "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + s.path("server.crt"), "--tls-private-key-file=" + s.path("server.key"), "--client-ca-file=" + s.path("ca.crt"),
		"--token-auth-file=" + s.path("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-cluster-ip-range=10.229.255.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("sa.key"), "--service-account-signing-key-file=" + s.path("sa.key"),
		"--kubelet-client-certificate=" + s.path("kubelet-client.crt"), "--kubelet-client-key=" + s.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true", "--profiling=false", "--v=0",
	}
	if s.opts.VerifyNodes {
		args = append(args, "--kubelet-certificate-authority="+s.path("ca.crt"))
	}
	s.api = s.run("kube-apiserver", append(args, s.opts.Flags...)...)
	s.Eventually("the API server is ready", func() error {
		if err := s.api.ended(); err != nil {
			s.t.Fatalf("kube-apiserver: %v\n%s", err, s.api.out.tail())
		}
		return s.Do(http.MethodGet, "/readyz", nil, nil)
	})
}

// RunControllers runs what makes pods of DaemonSets and Jobs and binds them to nodes: a kube-controller-manager with only the controllers
// that are needed for that, or those that are named ("*": all), and a kube-scheduler. They end with the test.
func (s *Server) RunControllers(names ...string) {
	s.t.Helper()
	if len(names) == 0 {
		names = []string{"daemonset-controller", "job-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller", "node-lifecycle-controller", "garbage-collector-controller"}
	}
	common := []string{"--kubeconfig=" + s.Kubeconfig(s.Address, Request{Name: "controllers", Groups: []string{"system:masters"}}), "--leader-elect=false", "--secure-port=0"}
	s.others = append(s.others,
		s.run("kube-controller-manager", append(common, "--service-account-private-key-file="+s.path("sa.key"), "--root-ca-file="+s.path("ca.crt"),
			"--controllers="+strings.Join(names, ","))...),
		s.run("kube-scheduler", common...))
}

// Stop ends the API server; what it stores is kept.
func (s *Server) Stop() { s.api.stop() }

// Pause suspends the API server: connections stay open and get no answer. Resume continues it.
func (s *Server) Pause() { s.api.signal(syscall.SIGSTOP) }

// Resume is the end of a Pause.
func (s *Server) Resume() { s.api.signal(syscall.SIGCONT) }

// Log is the end of what the API server has said, and the controllers.
func (s *Server) Log() string {
	texts := []string{s.api.out.tail()}
	for _, p := range s.others {
		texts = append(texts, p.cmd.Path+":\n"+p.out.tail())
	}
	return strings.Join(texts, "\n")
}

// Eventually polls until try succeeds.
func (s *Server) Eventually(what string, try func() error) {
	s.t.Helper()
	var err error
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	s.t.Fatalf("%s: not after %v: %v", what, Patience, err)
}

// Program is the path of another program of Kubernetes beside those that run.
func (s *Server) Program(name string) string { return filepath.Join(s.opts.Programs, name) }

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Text) }

// NotFound reports whether an error is the answer 404.
func NotFound(err error) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Code == http.StatusNotFound
}

// Do asks the API as an administrator. body and into may be nil.
func (s *Server) Do(method, path string, body, into any) error {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+s.Address+path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	res, err := s.admin.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode/100 != 2:
		return &StatusError{res.StatusCode, strings.TrimSpace(string(b))}
	case into == nil:
		return nil
	}
	if text, ok := into.(*string); ok {
		*text = string(b)
		return nil
	}
	return json.Unmarshal(b, into)
}

// Must is Do of what must succeed.
func (s *Server) Must(method, path string, body, into any) {
	s.t.Helper()
	if err := s.Do(method, path, body, into); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Kubeconfig writes a kubeconfig for a user with a client certificate of the CA, and returns its path. address is of the
// API, or of a proxy before it.
func (s *Server) Kubeconfig(address string, who Request) string {
	s.t.Helper()
	c := s.CA.Issue(s.t, who)
	user := fmt.Sprintf("{client-certificate-data: %s, client-key-data: %s}", base64.StdEncoding.EncodeToString(c.Cert), base64.StdEncoding.EncodeToString(c.Key))
	return s.kubeconfig(address, user)
}

// BootstrapKubeconfig writes one for a machine that has no certificate yet: with a token.
func (s *Server) BootstrapKubeconfig(address string) string {
	s.t.Helper()
	return s.kubeconfig(address, "{token: joining-token}")
}

func (s *Server) kubeconfig(address, user string) string {
	f, err := os.CreateTemp(s.Dir, "kubeconfig-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://%s', certificate-authority-data: %s}}]\nusers: [{name: u, user: %s}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		address, base64.StdEncoding.EncodeToString(s.CA.PEM()), user)
	if err != nil {
		s.t.Fatal(err)
	}
	return f.Name()
}

// Approve approves and signs each pending request for that signer, as a controller manager would, and returns how many.
func (s *Server) Approve(signer string, life time.Duration) int {
	s.t.Helper()
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	var list certificatesv1.CertificateSigningRequestList
	s.Must(http.MethodGet, path, nil, &list)
	signed := 0
	for _, csr := range list.Items {
		if len(csr.Status.Certificate) > 0 || csr.Spec.SignerName != signer {
			continue
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		s.Must(http.MethodPut, path+"/"+csr.Name+"/approval", csr, &csr)
		csr.Status.Certificate = s.CA.Sign(s.t, csr.Spec.Request, life)
		s.Must(http.MethodPut, path+"/"+csr.Name+"/status", csr, nil)
		signed++
	}
	return signed
}

// Node is who a node is to the API server.
func Node(name string) Request {
	return Request{Name: "system:node:" + name, Groups: []string{"system:nodes"}}
}

// address returns one that is free.
func address(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// process is one program.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	err  error
}

func (s *Server) run(name string, args ...string) *process {
	s.t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(s.opts.Programs, name), args...), out: &output{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.Dir = s.Dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *process) ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("it has ended: %w", p.err)
	default:
		return nil
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.ended() == nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// stop kills it: etcd has its data in files, and an orderly end of an API server takes a minute.
func (p *process) stop() {
	if p == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

// output is the last of what a process has said.
type output struct {
	mu  sync.Mutex
	buf []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, p...)
	if len(o.buf) > 1<<16 {
		o.buf = append([]byte(nil), o.buf[len(o.buf)-1<<15:]...)
	}
	return len(p), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.buf[max(0, len(o.buf)-8000):])
}

// Bind makes a pod that is bound to a node, with a ConfigMap `settings`, a Secret `db` and a ServiceAccount `robot`, which are made
// when they are not there. change, which may be left out, changes it before. The pod prints what it has of them.
func (s *Server) Bind(node, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	s.t.Helper()
	about := func(kind, name string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name}}
	}
	settings, db := about("ConfigMap", "settings"), about("Secret", "db")
	settings["data"], db["stringData"] = map[string]any{"color": "blue"}, map[string]any{"pass": "secret"}
	const base = "/api/v1/namespaces/default"
	for path, object := range map[string]any{"/configmaps": settings, "/secrets": db, "/serviceaccounts": about("ServiceAccount", "robot")} {
		if err := s.Do(http.MethodPost, base+path, object, nil); err != nil && !conflict(err) {
			s.t.Fatal(err)
		}
	}
	projected := func(from ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: from}}
	}
	no, grace := false, int64(1)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "robot", AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "c", Image: "monopod.test/busybox:1", ImagePullPolicy: corev1.PullNever,
				Command:      []string{"sh", "-c", "echo $COLOR $(cat /db/pass) $(wc -c < /token/token); sleep 9999"},
				Env:          []corev1.EnvVar{{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}}},
				VolumeMounts: []corev1.VolumeMount{{Name: "db", MountPath: "/db"}, {Name: "token", MountPath: "/token"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "db", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "db"}}},
				{Name: "token", VolumeSource: projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}})},
			},
		},
	}
	for _, f := range change {
		f(p)
	}
	s.Must(http.MethodPost, base+"/pods", p, p)
	return p
}

// conflict reports whether an error is the answer 409.
func conflict(err error) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Code == http.StatusConflict
}
