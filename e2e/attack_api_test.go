//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/internal/pause"
)

// besieged is an agent whose Kubernetes API is attacked over TLS while its pods keep serving.
type besieged struct {
	*attacked
	config *rest.Config
	tls    *tls.Config
	host   string
	open   []net.Conn
	// readySince is when the serving pod became Ready.
	web        corev1.Pod
	readySince metav1.Time
}

// endless is a pod with a page, another one that never ends, and a log of more than a megabyte.
func endless() string {
	return sleeper("web", `seq 200000; mkdir -p /www/cgi-bin; echo served >/www/index.html; printf '#!/bin/sh\necho; exec yes' >/www/cgi-bin/endless; chmod +x /www/cgi-bin/endless; httpd -p 8080 -h /www`,
		"    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}")
}

// perConnection is the memory that the agent may use for each configured connection beyond the first thousand.
const perConnection = 16 << 10

func besiege(t *testing.T, connections int) *besieged {
	in := newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d', maxConnections: %d}", freePort(t), connections))
	in.put("web", endless())
	b := &besieged{attacked: attack(in)}
	b.most += max(0, connections-1000) * perConnection
	file := filepath.Join(in.dir, "admin.kubeconfig")
	if out, err := in.run("kubeconfig", "admin", "--output", file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if b.config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatal(err)
	}
	b.host = strings.TrimPrefix(b.config.Host, "https://")
	if b.tls, err = rest.TLSConfigFor(b.config); err != nil {
		t.Fatal(err)
	}
	b.tls.NextProtos, b.tls.ServerName = []string{"http/1.1"}, "127.0.0.1"
	b.web = in.ready("web")
	b.readySince = readySince(b.web)
	t.Cleanup(b.end)
	return b
}

func readySince(p corev1.Pod) metav1.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime
		}
	}
	return metav1.Time{}
}

// end closes the connections of the attacker.
func (b *besieged) end() {
	for _, c := range b.open {
		_ = c.Close()
	}
	b.open = nil
}

// say opens a connection that reads at most the first bytes of a response.
func (b *besieged) say(text []byte, read bool) string {
	d := &net.Dialer{Timeout: 10 * time.Second}
	raw, err := d.DialContext(b.t.Context(), "tcp", b.host)
	if err != nil {
		return ""
	}
	_ = raw.(*net.TCPConn).SetReadBuffer(4096)
	b.open = append(b.open, raw)
	c := tls.Client(raw, b.tls)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if err := c.Handshake(); err != nil {
		return err.Error()
	}
	_, _ = c.Write(text) // a response may arrive before everything is written
	first := make([]byte, 12)
	if !read {
		return ""
	}
	if _, err := io.ReadFull(c, first); err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(string(first), "HTTP/1.1 ")
}

// withstands runs an attack, during which a pod must keep serving and stay Ready, and other clients must get responses.
func (b *besieged) withstands(name string, attack func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	var watching sync.WaitGroup
	served, slowest := 0, time.Duration(0)
	watching.Go(func() {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for ctx.Err() == nil {
			began := time.Now()
			if text, err := get(client, "http://"+net.JoinHostPort(b.web.Status.PodIP, "8080")); err != nil || text != "served\n" {
				b.t.Errorf("%s: the pod web serves %q, %v", name, text, err)
			}
			served, slowest = served+1, max(slowest, time.Since(began))
			pause.For(ctx, 50*time.Millisecond)
		}
	})
	b.survives(name, func() {
		attack()
		began := time.Now()
		if _, err := b.run("get", "pods"); err != nil {
			b.t.Errorf("%s: %v", name, err)
		}
		b.t.Logf("%s: %d connections; the command of a user takes %v", name, len(b.open), time.Since(began).Round(time.Millisecond))
	})
	b.end()
	cancel()
	watching.Wait()
	now := b.ready("web")
	if now.Status.ContainerStatuses[0].RestartCount != 0 || !readySince(now).Time.Equal(b.readySince.Time) {
		b.t.Errorf("%s: the pod web was ready since %v, and is %s", name, b.readySince, brief(now))
	}
	b.t.Logf("%s: the pod web has served %d times, in %v at most", name, served, slowest.Round(time.Millisecond))
	if strings.Contains(b.log.String(), "panic") {
		b.t.Errorf("%s: %s", name, b.log.tail())
	}
}

func get(c *http.Client, address string) (string, error) {
	r, err := c.Get(address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	return string(text), err
}

// TestAttackAPI: clients of the Kubernetes API that never read, never write, write too much, or write noise. The agent's memory stays
// bounded, other clients are served, and pods stay Ready and keep serving. MONOPOD_ATTACK=1: with 10,000 connections.
func TestAttackAPI(t *testing.T) {
	connections := 300
	if large() {
		connections = 9_700
	}
	b := besiege(t, connections+300) // at most 10,000 can be configured
	request := func(line string, headers ...string) []byte {
		return []byte(line + " HTTP/1.1\r\nHost: node\r\n" + strings.Join(append(headers, "", ""), "\r\n"))
	}
	many := func(n int, text []byte) func() {
		return func() {
			for range n {
				b.say(text, false)
			}
		}
	}
	const inDefault = "/api/v1/namespaces/default"
	b.withstands("watches are not read", func() {
		refused := 0
		for range 100 {
			if b.say(request("GET "+inDefault+"/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), true) == "429" {
				refused++
			}
		}
		if refused < 30 {
			t.Errorf("%d watches of one user are refused", refused)
		}
	})
	b.withstands("lists are not read", many(connections/4, request("GET /openapi/v2")))
	b.withstands("bodies are slow", many(connections/4, append(request("POST "+inDefault+"/configmaps", "Content-Type: application/json", "Content-Length: 3000000"), `{"a":`...)))
	b.withstands("bodies are too large", func() {
		for length, want := range map[int]string{300_000_000: "413", 3_000_000: "4"} {
			text := request("POST "+inDefault+"/configmaps", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", length))
			if got := b.say(append(text, bytes.Repeat([]byte("["), min(length, 3_000_000))...), true); !strings.HasPrefix(got, want) {
				t.Errorf("a body of %d bytes: %q", length, got)
			}
		}
	})
	b.withstands("streams are not read", func() {
		web := inDefault + "/pods/" + b.web.Name
		socket := []string{"Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v4.channel.k8s.io"}
		for n := range 60 {
			got := ""
			switch n % 4 {
			case 0:
				got = b.say(request("GET "+web+"/exec?command=yes&stdout=1", socket...), true)
			case 1:
				got = b.say(request("GET "+web+":8080/proxy/cgi-bin/endless"), true)
			case 2:
				got = b.say(request("GET "+web+"/log?follow=1"), true)
			case 3:
				got = b.say(append(request("GET "+web+"/portforward?ports=8080", socket...), frame("\x00GET /cgi-bin/endless HTTP/1.0\r\n\r\n")...), true)
			}
			if got != "101" && got != "200" {
				t.Errorf("stream %d: %q", n, got)
			}
		}
	})
	b.withstands("requests are noise", func() { b.noise(t, map[bool]int{false: 1500, true: 30_000}[large()]) })
	b.withstands("connections say nothing", func() {
		for range connections {
			if c, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", b.host); err == nil {
				b.open = append(b.open, c)
			}
		}
	})
	b.withstands("there are more connections than there may be", many(600, request("GET "+inDefault+"/pods?watch=1")))
}

// frame is a masked binary frame of a WebSocket, of at most 125 bytes.
func frame(text string) []byte {
	return append([]byte{0x82, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
}

// noise sends requests that resemble those of clients. None may cause a server error.
func (b *besieged) noise(t *testing.T, requests int) {
	transport, err := rest.TransportFor(b.config)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: patience}
	var all sync.WaitGroup
	for n := range 4 {
		random := rand.New(rand.NewPCG(uint64(n), 47))
		all.Go(func() {
			for range requests / 4 {
				method, path, media, body := noisy(random)
				r, err := http.NewRequestWithContext(t.Context(), method, b.config.Host, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.URL.Opaque = "//" + b.host + path // as it is
				r.Header.Set("Content-Type", media)
				answer, err := client.Do(r)
				if err != nil {
					t.Errorf("%s %q %q: %v", method, path, body, err)
					return
				}
				text, _ := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
				_ = answer.Body.Close()
				if answer.StatusCode >= 500 && answer.StatusCode != http.StatusServiceUnavailable && answer.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("%s %q %q: %s: %s", method, path, body, answer.Status, text)
				}
			}
		})
	}
	all.Wait()
}

// noisy returns a request with some invalid part.
func noisy(random *rand.Rand) (method, path, media, body string) {
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	damaged := func(text string) string {
		b := []byte(text)
		for range random.IntN(3) {
			switch at := random.IntN(len(b) + 1); random.IntN(4) {
			case 0:
				b = append(b[:at:at], append([]byte(one("..", "%", "/", "\"", "{", "[", "]", "}", "~1", ",", "null", "\x00", "-1", "1e999999", "\xff")), b[at:]...)...)
			case 1:
				b = append(b[:at:at], b[min(at+random.IntN(8), len(b)):]...)
			case 2:
				b = append(b[:at:at], append(bytes.Repeat(b[at:min(at+random.IntN(8), len(b))], random.IntN(2000)), b[at:]...)...)
			case 3:
				if at < len(b) {
					b[at] ^= byte(1 << random.IntN(8))
				}
			}
		}
		return string(b)
	}
	method = one("GET", "GET", "POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE", "OPTIONS", "HEAD")
	path = damaged(one("/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/monopod.dev/v1alpha1") + one("/namespaces/default", "/namespaces/nowhere", "") + "/" +
		one("pods", "configmaps", "secrets", "deployments", "jobs", "services", "events", "sources", "nodes") + one("", "/hostile", "/good", "/web") + one("", "", "/status", "/scale", "/log", "/eviction"))
	path = "/" + strings.ReplaceAll(url.PathEscape(strings.TrimPrefix(path, "/")), "%2F", "/") + "?" + url.Values{
		one("labelSelector", "fieldSelector", "fieldManager", "resourceVersion", "limit", "continue", "dryRun", "timeoutSeconds", "propagationPolicy", "tailLines", "sinceTime"): {damaged(one(
			"app in (a,b),!c", "metadata.name=web,status.phase!=Running", "noise", "18446744073709551615", "All", "1"))},
	}.Encode()
	media = one("application/json", "application/yaml", "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml",
		"application/vnd.kubernetes.protobuf", "text/plain")
	body = damaged(one(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hostile","labels":{"a":"b"}},"data":{"a":"b"}}`,
		`[{"op":"add","path":"/metadata/labels/a","value":"b"},{"op":"copy","from":"/metadata","path":"/metadata/labels/c"},{"op":"test","path":"/data/a~1b/0/-","value":[1e400]}]`,
		`{"metadata":{"labels":{"n":null,"$patch":"replace"},"finalizers":["a/b"]},"spec":{"containers":[{"name":"c","$patch":"delete"}],"$setElementOrder/containers":[{"name":"c"}]}}`,
		`{"spec":{"replicas":-1,"template":{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-2147483648"}}}]}}}}`,
		"apiVersion: v1\nkind: Pod\nmetadata: &a {name: hostile}\nspec: {containers: [*a, *a]}\n",
		"k8s\x00\n\x0c\n\x02v1\x12\x06Secret\x12\xff\xff\xff\xff\x0f", ""))
	return method, path, media, body
}
