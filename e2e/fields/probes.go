package fields

import (
	"net/http"
	"strings"
	"time"
)

// forever is a script that goes on until it is told to end.
const forever = "trap 'exit 0' TERM; sleep 3600 & wait"

// rightly is what httpGet of rows asks for; PORT gets the request, and PORT2 when the port is another one.
const rightly = "{host: 127.0.0.1, port: PORT, path: /right, scheme: HTTPS, httpHeaders: [{name: X-Row, value: right}]}"

// rightlyOtherwise are the values with which httpGet at path does not ask rightly.
func rightlyOtherwise(path string) map[string]any {
	return map[string]any{
		path + "port":               "PORT2",
		path + "httpHeaders[].name": "X-Other", path + "httpHeaders[].value": "wrong",
	}
}

// asked makes a Check: the first request is the right one.
func asked(right func(r *Request) bool) func(s *Seen) Verdict {
	return func(s *Seen) Verdict {
		switch {
		case len(s.Requests) > 0:
			return verdict(right(s.Requests[0]))
		case len(s.Requests2) > 0:
			return Fails
		}
		return Undecided
	}
}

func askedRightly(r *Request) bool {
	return r.To == "127.0.0.1" && r.URI == "/right" && r.TLS && r.Proto == 1 && r.Header.Get("X-Row") == "right"
}

// probeRows are the rows of probes. Their pods are in the network of the host, where servers of the test are asked.
func probeRows() []Row {
	var rows []Row
	for _, kind := range []string{"liveness", "readiness", "startup"} {
		rows = append(rows, probeHandlerRows(kind)...)
		rows = append(rows, probeTimeRows(kind)...)
		rows = append(rows, probeThresholdRows(kind)...)
	}
	return rows
}

// probe is the path of a probe and the beginning of its YAML.
func probe(kind string) (path, text string) {
	return c + kind + "Probe.", kind + "Probe: "
}

func under(path string, names ...string) []string {
	var all []string
	for _, n := range names {
		all = append(all, path+n)
	}
	return all
}

func probeHandlerRows(kind string) []Row {
	p, text := probe(kind)
	rows := []Row{
		{
			Name:      kind + "-httpget",
			Fields:    under(p+"httpGet.", "path", "port", "host", "scheme", "httpHeaders[].name", "httpHeaders[].value"),
			Otherwise: rightlyOtherwise(p + "httpGet."),
			Container: text + "{httpGet: " + rightly + "}", Check: asked(askedRightly),
		},
		{
			Name: kind + "-http2", Fields: under(p+"httpGet.", "protocol"),
			Container: text + "{httpGet: {port: PORT, protocol: HTTP2}}", Check: asked(func(r *Request) bool { return r.Proto == 2 }),
		},
		{
			Name: kind + "-tcpsocket", Fields: under(p+"tcpSocket.", "port", "host"),
			Otherwise: map[string]any{p + "tcpSocket.port": "PORT2"},
			Container: text + "{tcpSocket: {host: 127.0.0.1, port: PORT}}",
			Check:     asked(func(r *Request) bool { return r.Method == "" && r.To == "127.0.0.1" }),
		},
		{
			Name: kind + "-grpc", Fields: under(p+"grpc.", "port", "service", "mode"),
			Otherwise: map[string]any{p + "grpc.port": "PORT2"},
			Container: text + "{grpc: {port: PORT, service: right, mode: TLS}}",
			Check: asked(func(r *Request) bool {
				return r.URI == "/grpc.health.v1.Health/Check" && strings.Contains(r.Body, "right") && r.TLS && r.Proto == 2
			}),
		},
		{
			Name: kind + "-exec", Fields: []string{p + "exec.command[]"},
			Otherwise: map[string]any{p + "exec.command[]": []string{"sh", "-c", "echo wrong > /d/f"}},
			Container: text + "{exec: {command: [sh, -c, 'echo right > /d/f']}}\nvolumeMounts: [{name: d, mountPath: /d}]",
			Check:     when(func(s *Seen) bool { return s.File("f") == "right" }, func(s *Seen) bool { return s.File("f") == "wrong" }),
		},
	}
	for i := range rows {
		rows[i].Script, rows[i].Spec = forever, "hostNetwork: true\nvolumes: [{name: d, hostPath: {path: DIR}}]"
	}
	return rows
}

const ask = "httpGet: {host: 127.0.0.1, port: PORT}, "

// probeTimeRows measure times: each threshold is far from both of what it tells apart.
func probeTimeRows(kind string) []Row {
	p, text := probe(kind)
	rows := []Row{
		{
			Name: kind + "-initialdelay", Fields: []string{p + "initialDelaySeconds"},
			Container: text + "{" + ask + "initialDelaySeconds: 6}",
			Script:    "wget -q -O /dev/null http://127.0.0.1:PORT2/started; " + forever,
			Check: func(s *Seen) Verdict {
				if len(s.Requests) == 0 || len(s.Requests2) == 0 {
					return Undecided
				}
				return verdict(s.Requests[0].At.Sub(s.Requests2[0].At) > 3*time.Second)
			},
		},
		{
			Name: kind + "-timeout", Fields: []string{p + "timeoutSeconds"},
			Container: text + "{" + ask + "timeoutSeconds: 5}", Script: forever,
			Answer: func(_ int, r *Request) int { <-r.GaveUp; return http.StatusOK },
			Check: func(s *Seen) Verdict {
				if len(s.Requests) == 0 || s.Requests[0].Took == 0 {
					return Undecided
				}
				return verdict(s.Requests[0].Took > 3*time.Second)
			},
		},
		{
			Name: kind + "-period", Fields: []string{p + "periodSeconds"},
			Otherwise: map[string]any{p + "periodSeconds": 8},
			Container: text + "{" + ask + "periodSeconds: 1, failureThreshold: 100}", Script: forever,
			// A startup probe goes on only as long as it fails.
			Answer: func(int, *Request) int {
				if kind == "startup" {
					return http.StatusServiceUnavailable
				}
				return http.StatusOK
			},
			Check: func(s *Seen) Verdict {
				if len(s.Requests) < 2 {
					return Undecided
				}
				return verdict(s.Requests[1].At.Sub(s.Requests[0].At) < 4*time.Second)
			},
		},
	}
	for i := range rows {
		rows[i].Spec = "hostNetwork: true"
	}
	return rows
}

func unwell(int, *Request) int { return http.StatusServiceUnavailable }

func probeThresholdRows(kind string) []Row {
	if kind == "readiness" {
		return readinessThresholdRows()
	}
	p, text := probe(kind)
	return []Row{
		{
			Name: kind + "-failurethreshold", Fields: []string{p + "failureThreshold"}, Spec: "hostNetwork: true",
			Otherwise: map[string]any{p + "failureThreshold": 6},
			Container: text + "{" + ask + "periodSeconds: 1, failureThreshold: 1}", Script: forever, Answer: unwell,
			Check: func(s *Seen) Verdict {
				switch {
				case len(s.Requests) > 5:
					return Fails
				case s.Ended() != nil:
					return Holds
				}
				return Undecided
			},
		},
		{
			// The one value that is valid.
			Name: kind + "-successthreshold", Fields: []string{p + "successThreshold"}, Spec: "hostNetwork: true",
			Otherwise: map[string]any{p + "successThreshold": 2}, Refused: []string{p + "successThreshold"},
			Container: text + "{" + ask + "successThreshold: 1}", Script: forever,
			Check: func(s *Seen) Verdict {
				if len(s.Requests) == 0 || !s.Ready() {
					return Undecided
				}
				return Holds
			},
		},
		{
			Name: kind + "-grace", Fields: []string{p + "terminationGracePeriodSeconds"},
			Spec: "terminationGracePeriodSeconds: 30",
			// It fails once the container is prepared for its end.
			Container: text + "{exec: {command: [sh, -c, 'until [ -e /tmp/set ]; do sleep 0.05; done; exit 1']}, " +
				"timeoutSeconds: 60, failureThreshold: 1, terminationGracePeriodSeconds: 1}",
			Script: "trap 'sleep 8; exit 7' TERM; touch /tmp/set; sleep 3600 & wait",
			Check: func(s *Seen) Verdict {
				if s.Ended() == nil {
					return Undecided
				}
				return verdict(s.Ended().ExitCode == 137)
			},
		},
	}
}

func readinessThresholdRows() []Row {
	p, text := probe("readiness")
	return []Row{
		{
			Name: "readiness-successthreshold", Fields: []string{p + "successThreshold"}, Spec: "hostNetwork: true",
			Container: text + "{" + ask + "periodSeconds: 1, successThreshold: 6}", Script: forever,
			Check: func(s *Seen) Verdict {
				if !s.Ready() {
					return Undecided
				}
				return verdict(len(s.Requests) >= 6)
			},
		},
		{
			Name: "readiness-failurethreshold", Fields: []string{p + "failureThreshold"}, Spec: "hostNetwork: true",
			Otherwise: map[string]any{p + "failureThreshold": 1000},
			Container: text + "{" + ask + "periodSeconds: 1, failureThreshold: 1}", Script: forever,
			Answer: func(n int, _ *Request) int {
				if n == 1 {
					return http.StatusOK
				}
				return http.StatusServiceUnavailable
			},
			// Both the first success and the first failure are to be seen a moment after the request.
			Check: func(s *Seen) Verdict {
				switch n := len(s.Requests); {
				case n > 8 && s.Ready():
					return Fails
				case n > 4 && !s.Ready() && s.Status("c").State.Running != nil:
					return Holds
				}
				return Undecided
			},
		},
		{
			// It has no meaning for a readiness probe, and saying so is what there is to do.
			Name: "readiness-grace", Fields: []string{p + "terminationGracePeriodSeconds"}, Spec: "hostNetwork: true",
			Otherwise: map[string]any{p + "terminationGracePeriodSeconds": 1}, Refused: []string{p + "terminationGracePeriodSeconds"},
			Container: text + "{" + ask + "periodSeconds: 1}", Script: forever,
			Check: when((*Seen).Ready, func(s *Seen) bool { return s.Ended() != nil }),
		},
	}
}
