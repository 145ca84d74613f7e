//go:build e2e

package e2e

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAttackRegistry: a registry whose token server answers without end, asked for an image and for an artifact with manifests, does not
// take the memory of the agent.
func TestAttackRegistry(t *testing.T) {
	token := strings.Repeat("a", 1<<20)
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, `{"token":"`)
		for n := 0; err == nil && n < 900; n++ {
			_, err = io.WriteString(w, token)
		}
		_, _ = io.WriteString(w, `"}`)
	}))
	t.Cleanup(tokens.Close)
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm=%q,service="hostile"`, tokens.URL+"/token"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(registry.Close)
	host := strings.TrimPrefix(registry.URL, "http://")
	a := newAttacked(t, fmt.Sprintf("sources: [{name: fleet, url: %q, period: 1s, timeout: 5s}]", "oci://"+host+"/fleet/pods:1"))
	a.survives("a token without end, for an image and an artifact", func() {
		a.put("hostile", podOf("hostile", "image: '"+host+"/hostile/app:1'", ""))
		a.eventually("why names the answer", func() error {
			out, err := a.run("why", "hostile")
			if err == nil && !strings.Contains(out, "larger than any") {
				err = fmt.Errorf("it says %.2000s", out)
			}
			return err
		})
		a.told("fleet", "larger than any")
	})
}

// TestAttackSignatures: an envelope with many signatures does not take the processor, and the agent can still be stopped.
func TestAttackSignatures(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	type signature struct {
		Sig string `json:"sig"`
	}
	all := make([]signature, 57_000)
	for i := range all {
		all[i].Sig = base64.StdEncoding.EncodeToString(make([]byte, ed25519.SignatureSize))
	}
	envelope, err := json.Marshal(map[string]any{
		"payloadType": "application/vnd.monopod.manifests+yaml", "payload": base64.StdEncoding.EncodeToString(make([]byte, 1<<20)), "signatures": all,
	})
	if err != nil {
		t.Fatal(err)
	}
	site := newSite(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	site.authority(ca)
	site.says(string(envelope))
	a := newAttacked(t, fmt.Sprintf("sources: [{name: fleet, url: %q, caFile: %s, period: 1s, signature: {kind: dsse, keys: [%q]}}]",
		"https://"+site.address+"/pods.yaml", ca, base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))))
	a.survives("an envelope with many signatures", func() { a.told("fleet", "more than 16 signatures") })
	began := time.Now()
	if err := a.signal(syscall.SIGTERM); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the agent ended after %v", took)
	}
}

// TestAttackServices: thousands of Services that select the same pods take memory for both, not for each pair.
func TestAttackServices(t *testing.T) {
	pods, services := 24, 12_000
	if large() {
		pods = 40
	}
	a := newAttacked(t)
	for i := range pods {
		a.put(fmt.Sprint("backend", i), strings.Replace(sleeper(fmt.Sprint("backend", i), ":"), "labels: {", "labels: {behind: all, ", 1))
	}
	for i := range pods {
		a.ready(fmt.Sprint("backend", i))
	}
	var text strings.Builder
	for i := range services {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Service, metadata: {name: s%d}, spec: {selector: {behind: all}, ports: [{name: a, port: 80}, {name: b, port: 81}]}}\n", i)
	}
	gateway := netip.MustParsePrefix(a.subnet).Masked().Addr().Next().String()
	a.survives("Services of the same pods", func() {
		a.put("hostile", text.String())
		a.eventually("the last Service has a name", func() error {
			out, err := a.run("exec", "good", "--", "nslookup", "-type=a", fmt.Sprintf("s%d.default.svc.cluster.local", services-1), gateway)
			if err == nil && strings.Contains(out, "NXDOMAIN") {
				err = errors.New(out)
			}
			return err
		})
	})
}

// TestAttackVariables: each pod of a namespace gets the variables of all its Services.
func TestAttackVariables(t *testing.T) {
	pods, services := 24, 1_000
	if large() {
		pods = 40
	}
	a := newAttacked(t)
	many := func(from, to int) string {
		var text strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Service, metadata: {name: s%d}, spec: {ports: [{name: a, port: 80}, {name: b, port: 81}]}}\n", i)
		}
		return text.String()
	}
	a.survives("variables of many Services", func() {
		a.put("hostile", many(0, services))
		a.serviceOf(fmt.Sprint("s", services-1))
		for i := range pods {
			a.put(fmt.Sprint("user", i), sleeper(fmt.Sprint("user", i), ":"))
		}
		for i := range pods {
			a.ready(fmt.Sprint("user", i))
		}
		out, err := a.run("exec", "user0", "--", "sh", "-c", "env | wc -c")
		if n, _ := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 300_000 {
			t.Errorf("the variables have %s bytes, %v", out, err)
		}
	})
	a.survives("variables of too many Services", func() {
		a.put("more", many(services, 10*services))
		a.serviceOf(fmt.Sprint("s", 10*services-1))
		for i := range pods {
			a.put(fmt.Sprint("late", i), sleeper(fmt.Sprint("late", i), ":"))
		}
		for i := range pods {
			a.eventually("a pod with more variables is refused", func() error {
				out, _ := a.run("why", fmt.Sprint("late", i)) // fails, since not all is fine
				if want := "set enableServiceLinks: false"; !strings.Contains(out, want) {
					return fmt.Errorf("no %q in %s", want, out)
				}
				return nil
			})
		}
	})
}
