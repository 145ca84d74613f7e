//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"monopod/e2e/netbed"
)

// shapes are Services like those of the corpus, each with the fewest lines.
const shapes = `
- {metadata: {name: same}, spec: {selector: {app: back}, ports: [{port: 8080}]}}
- {metadata: {name: differs}, spec: {selector: {app: back}, ports: [{port: 80, targetPort: 8080}]}}
- {metadata: {name: named}, spec: {selector: {app: back}, ports: [{port: 443, targetPort: http}]}}
- {metadata: {name: udp}, spec: {selector: {app: back}, ports: [{port: 53, protocol: UDP, targetPort: dns}]}}
- {metadata: {name: both}, spec: {selector: {app: back}, ports: [{name: u, port: 54, protocol: UDP, targetPort: 8080}, {name: t, port: 54, targetPort: 8080}]}}
- {metadata: {name: node}, spec: {type: NodePort, selector: {app: back}, ports: [{port: 3000, targetPort: http}]}}
- {metadata: {name: node-udp}, spec: {type: NodePort, selector: {app: back}, ports: [{port: 3001, protocol: UDP, targetPort: dns}]}}
- {metadata: {name: sticky}, spec: {sessionAffinity: ClientIP, selector: {app: back}, ports: [{port: 80, targetPort: 8080}]}}
- {metadata: {name: internal}, spec: {internalTrafficPolicy: Local, selector: {app: back}, ports: [{port: 80, targetPort: 8080}]}}
- {metadata: {name: external}, spec: {type: NodePort, externalTrafficPolicy: Local, selector: {app: back}, ports: [{port: 80, targetPort: 8080}]}}
- {metadata: {name: nowhere}, spec: {type: NodePort, externalTrafficPolicy: Local, internalTrafficPolicy: Local, selector: {app: none}, ports: [{port: 80}]}}
- {metadata: {name: headless}, spec: {clusterIP: None, selector: {app: back}, ports: [{port: 80, targetPort: 8080}]}}
- {metadata: {name: alias}, spec: {type: ExternalName, externalName: differs.default.svc.cluster.local}}
`

// serves answers connections and packets to a port of a network namespace with a name.
func serves(t *testing.T, netns, addr, name string) {
	t.Helper()
	var l net.Listener
	var u net.PacketConn
	err := netbed.InNet(t, netns, func() (err error) {
		if l, err = net.Listen("tcp", addr); err != nil {
			return err
		}
		u, err = net.ListenPacket("udp", addr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(l.Close(), u.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
	go func() {
		b := make([]byte, 10)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo([]byte(name), from)
		}
	}()
}

// TestServicesOfAllShapesCarryTraffic, from the machine, another pod and an endpoint itself.
func TestServicesOfAllShapesCarryTraffic(t *testing.T) {
	in := newInstance(t)
	in.start()
	ports := "    ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 5353, protocol: UDP}]"
	for _, name := range []string{"one", "two"} {
		in.put(name, strings.Replace(sleeper(name, ":", ports), "app: "+name, "app: back", 1))
	}
	in.put("client", sleeper("client", ":"))
	for line := range strings.Lines(strings.TrimSpace(shapes)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "- {metadata: {name: "), "}")
		in.put(name, "apiVersion: v1\nkind: Service\n"+strings.NewReplacer("- {metadata:", "metadata:", "}, spec:", "}\nspec:").Replace(strings.TrimSuffix(strings.TrimSpace(line), "}"))+"\n")
	}
	netns := func(pod string) string { return fmt.Sprintf("/proc/%d/ns/net", in.pidOf(pod)) }
	one, two := netns("one"), netns("two")
	serves(t, one, ":8080", "one")
	serves(t, two, ":8080", "two")
	serves(t, one, ":5353", "one")
	serves(t, two, ":5353", "two")
	from := []string{"", netns("client"), one}

	// answer waits until as many endpoints answer: rules may follow the readiness of a pod a second later.
	answer := func(service, netns, network, addr string, n int) {
		in.eventually(fmt.Sprintf("%d endpoints of Service %s at %s %s answer to %q", n, service, network, addr, netns), func() error {
			var all []string
			for range 20 {
				name, err := netbed.Ask(t, netns, network, addr)
				if err != nil {
					return err
				}
				all = append(all, name)
			}
			slices.Sort(all)
			if all = slices.Compact(all); len(all) != n {
				return fmt.Errorf("%v answer", all)
			}
			return nil
		})
	}
	for _, tt := range []struct {
		service, network string
		port, endpoints  int
	}{
		{"same", "tcp", 8080, 2},
		{"differs", "tcp", 80, 2},
		{"named", "tcp", 443, 2},
		{"udp", "udp", 53, 2},
		{"both", "udp", 54, 2},
		{"both", "tcp", 54, 2},
		{"node", "tcp", 3000, 2},
		{"node-udp", "udp", 3001, 2},
		{"sticky", "tcp", 80, 1},
		{"internal", "tcp", 80, 2},
		{"external", "tcp", 80, 2},
	} {
		ip, nodePort := in.serviceOf(tt.service)
		to := []string{net.JoinHostPort(ip, strconv.Itoa(tt.port))}
		if nodePort != "" {
			to = append(to, net.JoinHostPort(gatewayOf(in.subnet), nodePort))
		}
		for _, netns := range from {
			for _, addr := range to {
				answer(tt.service, netns, tt.network, addr, tt.endpoints)
			}
		}
	}
	ip, nodePort := in.serviceOf("nowhere")
	for _, addr := range []string{ip + ":80", net.JoinHostPort(gatewayOf(in.subnet), nodePort)} {
		for _, netns := range from {
			if got, err := netbed.Ask(t, netns, "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("a Service without endpoints at %s from %q: %q, %v", addr, netns, got, err)
			}
		}
	}
	in.resolvesShapes()
}

// gatewayOf returns the address of the machine in a network of pods.
func gatewayOf(subnet string) string { return strings.TrimSuffix(subnet, "0/24") + "1" }

// resolvesShapes checks Services that are only names: of the pods, and of another name.
func (in *instance) resolvesShapes() {
	in.t.Helper()
	differs, _ := in.serviceOf("differs")
	for name, want := range map[string][]string{
		"headless": {in.ready("one").Status.PodIP, in.ready("two").Status.PodIP}, "alias": {differs, "differs.default.svc.cluster.local"},
	} {
		in.eventually(name+" resolves", func() error {
			out, err := in.run("exec", "client", "--", "nslookup", "-type=a", name+".default.svc.cluster.local")
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return err
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("no %s in %s", w, out)
				}
			}
			return nil
		})
	}
}
