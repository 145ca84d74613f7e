package fields

import "time"

// hookRows are the rows of lifecycle. What preStop does is looked at when the pod is gone.
func hookRows() []Row {
	var rows []Row
	for _, kind := range []string{"postStart", "preStop"} {
		p := c + "lifecycle." + kind + "."
		rows = append(rows, hookHandlerRows(kind, p)...)
	}
	rows = append(rows,
		Row{
			Name: "poststart-sleep", Fields: []string{c + "lifecycle.postStart.sleep.seconds"},
			Spec:      "{hostNetwork: true, terminationGracePeriodSeconds: 20}",
			Otherwise: map[string]any{c + "lifecycle.postStart.sleep.seconds": 1},
			Container: "lifecycle: {postStart: {sleep: {seconds: 8}}}",
			Script:    "wget -q -O /dev/null http://127.0.0.1:PORT/started; " + forever,
			Check: func(s *Seen) Verdict {
				if len(s.Requests) == 0 || !s.Ready() {
					return Undecided
				}
				return verdict(s.Now.Sub(s.Requests[0].At) > 4500*time.Millisecond)
			},
		},
		Row{
			Name: "prestop-sleep", Fields: []string{c + "lifecycle.preStop.sleep.seconds"}, Remove: true,
			Spec:      "{hostNetwork: true, terminationGracePeriodSeconds: 20}",
			Otherwise: map[string]any{c + "lifecycle.preStop.sleep.seconds": 1},
			Container: "lifecycle: {preStop: {sleep: {seconds: 8}}}",
			Script:    "trap 'wget -q -O /dev/null http://127.0.0.1:PORT/told; exit 0' TERM; sleep 3600 & wait",
			Check: func(s *Seen) Verdict {
				return verdict(len(s.Requests) > 0 && s.Requests[0].At.Sub(s.ActedAt) > 4500*time.Millisecond)
			},
		},
		Row{
			Name: "stopsignal", Fields: []string{c + "lifecycle.stopSignal"}, Remove: true,
			Spec:      "{os: {name: linux}, terminationGracePeriodSeconds: 20, volumes: [{name: d, hostPath: {path: DIR}}]}",
			Container: "{lifecycle: {stopSignal: SIGUSR1}, volumeMounts: [{name: d, mountPath: /d}], readinessProbe: {exec: {command: [test, -e, /d/set]}, periodSeconds: 1}}",
			Script:    "trap 'echo usr1 > /d/f; exit 0' USR1; trap 'echo term > /d/f; exit 0' TERM; touch /d/set; sleep 3600 & wait",
			Check:     func(s *Seen) Verdict { return verdict(s.File("f") == "usr1") },
		},
	)
	return rows
}

func hookHandlerRows(kind, p string) []Row {
	name := map[string]string{"postStart": "poststart", "preStop": "prestop"}[kind]
	text := "lifecycle: {" + kind + ": "
	rows := []Row{
		{
			Name:      name + "-httpget",
			Fields:    under(p+"httpGet.", "path", "port", "host", "scheme", "httpHeaders[].name", "httpHeaders[].value"),
			Otherwise: rightlyOtherwise(p + "httpGet."),
			Container: text + "{httpGet: " + rightly + "}}",
			// Without the host the pod itself is asked, and does not answer: a hook that fails ends its container.
			Check: func(s *Seen) Verdict {
				if v := asked(askedRightly)(s); v != Undecided || s.Ended() == nil && (s.Pod != nil || s.Before == nil) {
					return v
				}
				return Fails
			},
		},
		{
			Name: name + "-exec", Fields: []string{p + "exec.command[]"},
			Otherwise: map[string]any{p + "exec.command[]": []string{"sh", "-c", "echo wrong > /d/f"}},
			Container: text + "{exec: {command: [sh, -c, 'echo right > /d/f']}}}\nvolumeMounts: [{name: d, mountPath: /d}]",
			Check:     when(func(s *Seen) bool { return s.File("f") == "right" }, func(s *Seen) bool { return s.File("f") == "wrong" }),
		},
	}
	rows = append(rows, Row{
		Name: name + "-http2", Fields: under(p+"httpGet.", "protocol"),
		Container: text + "{httpGet: {port: PORT, protocol: HTTP2}}}", Check: asked(func(r *Request) bool { return r.Proto == 2 }),
	})
	for i := range rows {
		rows[i].Script, rows[i].Remove = forever, kind == "preStop"
		network := map[bool]string{true: "hostNetwork: true\n"}[rows[i].Name == name+"-http2"]
		rows[i].Spec = network + "terminationGracePeriodSeconds: 20\nvolumes: [{name: d, hostPath: {path: DIR}}]"
	}
	return rows
}
