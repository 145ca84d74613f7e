package kubeconfig

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	certs "k8s.io/client-go/util/cert"

	"monopod/internal/config"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/node/kubeapi/authority"
)

// served returns a function that executes `monopod kubeconfig` with a daemon that serves the API on an address.
func served(t *testing.T, address string) func(args ...string) clitest.Result {
	t.Helper()
	a := authority.New(authority.Config{Dir: filepath.Join(t.TempDir(), "api")})
	mux := http.NewServeMux()
	mux.Handle("POST /apis/monopod.dev/v1alpha1/agents/self/kubeconfig", authority.Handler(a, address, "edge-1"))
	socket := clitest.ServeOn(t, mux)
	return func(args ...string) clitest.Result {
		p := &clitest.Process{Program: &program.Program{Stdin: strings.NewReader(""), Euid: func() int { return 0 }, Env: config.Environment{Environ: []string{"MONOPOD_SOCKET=" + socket}, WorkDir: t.TempDir(), Hostname: os.Hostname}}}
		return clitest.Commands(execute).Run(t.Context(), p, append([]string{"kubeconfig"}, args...)...)
	}
}

func TestWhomAKubeconfigIsFor(t *testing.T) {
	t.Parallel()
	run := served(t, "127.0.0.1:6443")
	for _, tt := range []struct {
		args string
		user string
		// groups are in order.
		groups            []string
		namespace, server string
	}{
		{"", "admin", []string{"monopod:admin"}, "", "https://127.0.0.1:6443"},
		{"view", "view", []string{"monopod:view"}, "", "https://127.0.0.1:6443"},
		{"edit --user alice", "alice", []string{"monopod:edit"}, "", "https://127.0.0.1:6443"},
		{"edit --group ops,dev -n team", "edit", []string{"dev", "monopod:edit", "ops"}, "team", "https://127.0.0.1:6443"},
		{"--user ci --server https://edge.example:443", "ci", nil, "", "https://edge.example:443"},
		{"--user ci --group builders", "ci", []string{"builders"}, "", "https://127.0.0.1:6443"},
		{"admin --group monopod:admin", "admin", []string{"monopod:admin"}, "", "https://127.0.0.1:6443"},
	} {
		t.Run("kubeconfig "+tt.args, func(t *testing.T) {
			t.Parallel()
			r := run(strings.Fields(tt.args)...)
			if r.Code != 0 || r.Stderr != "" {
				t.Fatalf("%+v", r)
			}
			loaded, err := clientcmd.Load([]byte(r.Stdout))
			if err != nil {
				t.Fatal(err)
			}
			rest, err := clientcmd.RESTConfigFromKubeConfig([]byte(r.Stdout))
			if err != nil {
				t.Fatal(err)
			}
			found, err := certs.ParseCertsPEM(rest.CertData)
			if err != nil {
				t.Fatal(err)
			}
			subject := found[0].Subject
			slices.Sort(subject.Organization)
			if subject.CommonName != tt.user || !slices.Equal(subject.Organization, tt.groups) || rest.Host != tt.server {
				t.Errorf("%s at %s", subject, rest.Host)
			}
			if c := loaded.Contexts[loaded.CurrentContext]; loaded.CurrentContext != tt.user+"@edge-1" || c == nil || c.Namespace != tt.namespace {
				t.Errorf("context %s: %+v", loaded.CurrentContext, c)
			}
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	run := served(t, "127.0.0.1:6443")
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"owner":                           {program.ExitUsage, `unknown role "owner"; use view, edit or admin`},
		"view edit":                       {program.ExitUsage, "usage: monopod kubeconfig"},
		"--group ops":                     {program.ExitUsage, "--group without a role needs --user"},
		"--user system:admin":             {program.ExitError, "names that begin with system: belong to Kubernetes"},
		"view --server http://x":          {program.ExitError, `server "http://x": write it as https://HOST:PORT`},
		"view -n A":                       {program.ExitError, `namespace "A"`},
		"view --output /nowhere/a/config": {program.ExitError, "write the kubeconfig"},
		"view --output /":                 {program.ExitError, "choose another file with --output"},
	} {
		if r := run(strings.Fields(args)...); r.Code != want.code || !strings.Contains(r.Stderr, want.text) || r.Stdout != "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	off := served(t, "")
	if r := off(); r.Code != program.ExitError || !strings.Contains(r.Stderr, "apiServer: {address: 127.0.0.1:6443}") {
		t.Errorf("disabled: %+v", r)
	}
}

// TestTheDirectoryOfAKubeconfigIsMade: on a new machine, ~/.kube is missing.
func TestTheDirectoryOfAKubeconfigIsMade(t *testing.T) {
	t.Parallel()
	run := served(t, "127.0.0.1:6443")
	file := filepath.Join(t.TempDir(), ".kube", "monopod")
	for range 2 {
		if r := run("view", "--output", file); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestFilesOfOthersAreNotReplaced(t *testing.T) {
	t.Parallel()
	run := served(t, "127.0.0.1:6443")
	foreign := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"prod","cluster":{"server":"https://prod"}}]}`
	for name, tt := range map[string]struct {
		before, flag string
		ok           bool
	}{
		"a new file":            {"", "", true},
		"another kubeconfig":    {foreign, "", false},
		"something else":        {"precious", "", false},
		"replaced with --force": {foreign, "--force", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config")
			if tt.before != "" {
				if err := os.WriteFile(file, []byte(tt.before), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			r := run(append(strings.Fields(tt.flag), "--output", file)...)
			now, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.ok {
				if r.Code != program.ExitError || !strings.Contains(r.Stderr, "--force") || string(now) != tt.before {
					t.Errorf("%+v\n%s", r, now)
				}
				return
			}
			if r.Code != 0 || r.Stdout != "" || !strings.Contains(r.Stderr, "valid for 90 days") || !authority.IsOurs(now) {
				t.Fatalf("%+v\n%s", r, now)
			}
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if again := run("view", "--output", file); again.Code != 0 {
				t.Errorf("one of ours is not replaced: %+v", again)
			}
		})
	}
}
