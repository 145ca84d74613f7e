//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// kubectlOverTCP runs commands in pod busy with kubectl's client library, with all its protocols, over TLS with the certificate of an
// operator, and copies files like `kubectl cp`.
func (in *instance) kubectlOverTCP(t *testing.T, host string) {
	config := &rest.Config{Host: "https://" + host + ":10250", TLSClientConfig: rest.TLSClientConfig{
		CertFile: filepath.Join(in.dir, "operator.crt"), KeyFile: filepath.Join(in.dir, "operator.key"), Insecure: true,
	}}
	run := func(t *testing.T, open func(*rest.Config, *url.URL) (remotecommand.Executor, error), config *rest.Config, stdin io.Reader, args ...string) (string, string, error) {
		t.Helper()
		q := url.Values{"command": args, "output": {"1"}, "error": {"1"}}
		if stdin != nil {
			q.Set("input", "1")
		}
		u, err := url.Parse(config.Host + "/exec/default/busy/c?" + q.Encode())
		if err != nil {
			t.Fatal(err)
		}
		e, err := open(config, u)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		err = e.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Stderr: &errs})
		return out.String(), errs.String(), err
	}
	protocols := map[string]func(*rest.Config, *url.URL) (remotecommand.Executor, error){
		"SPDY": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(c, "POST", u)
		},
	}
	for _, v := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io"} {
		protocols[v] = func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutorForProtocols(c, "GET", u.String(), v)
		}
	}
	for name, open := range protocols {
		t.Run(name, func(t *testing.T) {
			script, want := "cat; echo oops >&2; exit 3", "typed\n"
			var from io.Reader = strings.NewReader(want)
			if name == "v4.channel.k8s.io" { // which cannot tell the end of what is typed
				script, want, from = "echo said; echo oops >&2; exit 3", "said\n", nil
			}
			out, errs, err := run(t, open, config, from, "sh", "-c", script)
			if code, ok := errors.AsType[exec.CodeExitError](err); !ok || code.Code != 3 || out != want || errs != "oops\n" {
				t.Errorf("%q, %q, %v", out, errs, err)
			}
			// A client that may only read metrics is refused.
			other := &rest.Config{Host: config.Host, BearerToken: "0123456789abcdef", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
			if out, _, err := run(t, open, other, nil, "id"); err == nil || out != "" {
				t.Errorf("a stranger: %q, %v", out, err)
			}
			if name != "v4.channel.k8s.io" {
				copyAsKubectl(t, name, func(stdin io.Reader, args ...string) (string, string, error) {
					return run(t, open, config, stdin, args...)
				})
			}
		})
	}
}

// copyAsKubectl copies with the tar program of the image, like kubectl.
func copyAsKubectl(t *testing.T, name string, run func(stdin io.Reader, args ...string) (string, string, error)) {
	t.Helper()
	content := strings.Repeat("all of it ", 300_000)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: name + ".copy", Mode: 0o640, Size: int64(len(content))})); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	if out, errs, err := run(&b, "tar", "-xmf", "-", "-C", "/v"); err != nil || out+errs != "" {
		t.Fatalf("into the container: %q, %q, %v", out, errs, err)
	}
	out, _, err := run(nil, "tar", "cf", "-", "/v/"+name+".copy")
	if err != nil {
		t.Fatal("out of the container:", err)
	}
	r := tar.NewReader(strings.NewReader(out))
	h, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := io.ReadAll(r); err != nil || string(back) != content || h.Name != "v/"+name+".copy" {
		t.Errorf("%s: %d bytes, %v", h.Name, len(back), err)
	}
}
