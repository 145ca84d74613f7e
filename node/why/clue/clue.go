// Package clue reads what programs and manifests leave as traces: exit codes, output about a port, the target of a probe.
//
// It is pure. It must not know pods or draw conclusions about them.
package clue

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ExitHint is what shells mean by an exit code.
func ExitHint(code int32) string {
	switch code {
	case 126:
		return " (in a shell: found, but not executable)"
	case 127:
		return " (in a shell: command not found)"
	}
	return ""
}

// Signal returns the signal that an exit code stands for.
func Signal(code int32) (string, bool) {
	names := map[int32]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 31: "SIGSYS"}
	name, ok := names[code-128]
	return name, ok
}

// ProbeTarget returns the target of a probe, and its path within the container, which may be nil.
func ProbeTarget(c *corev1.Container, kind string) (target, field string) {
	if c == nil {
		return "", ""
	}
	p := c.ReadinessProbe
	field = "readinessProbe"
	switch kind {
	case "Liveness":
		p, field = c.LivenessProbe, "livenessProbe"
	case "Startup":
		p, field = c.StartupProbe, "startupProbe"
	}
	switch {
	case p == nil:
		return "", field
	case p.HTTPGet != nil:
		return fmt.Sprintf(" (GET %s on port %s)", cmp.Or(p.HTTPGet.Path, "/"), p.HTTPGet.Port.String()), field + ".httpGet"
	case p.TCPSocket != nil:
		return fmt.Sprintf(" (TCP port %s)", p.TCPSocket.Port.String()), field + ".tcpSocket"
	case p.GRPC != nil:
		return fmt.Sprintf(" (gRPC port %d)", p.GRPC.Port), field + ".grpc"
	case p.Exec != nil:
		return fmt.Sprintf(" (command %s)", strings.Join(p.Exec.Command, " ")), field + ".exec.command"
	}
	return "", field
}
