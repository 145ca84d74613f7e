package fields

import (
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const c = "spec.containers[]."

// containerRows are the rows of containers without their probes and hooks.
func containerRows() []Row {
	return slices.Concat(
		onHost(slices.Concat(processRows(), endRows(), envRows(), objectRows(), resourceRows(), mountRows(), identityRows())),
		portRows(), capabilityRows(),
	)
}

// processRows are about the process of a container and where it comes from.
func processRows() []Row {
	return []Row{
		{
			Name: "name", Fields: []string{c + "name"}, Otherwise: map[string]any{c + "name": "other"},
			Script: "echo here", Check: func(s *Seen) Verdict {
				if s.Phase() != corev1.PodSucceeded {
					return Undecided
				}
				return verdict(s.Status("c").State.Terminated != nil && s.Log("c") == "here\n" && s.Status("other").Name == "")
			},
		},
		{
			Name: "image", Fields: []string{c + "image"}, Otherwise: map[string]any{c + "image": "REGISTRY/none:1"},
			Script: "true", Check: when(succeeded, pullFails),
		},
		{
			Name: "pullpolicy", Fields: []string{c + "imagePullPolicy"},
			Container: "{image: \"127.0.0.1:1/none:1\", imagePullPolicy: Never}", Check: when(waits("ErrImageNeverPull"), pullFails),
		},
		{
			// What the image would run alone succeeds.
			Name: "command", Fields: []string{c + "command[]"}, Container: "command: [sh, -c, exit 3]", Check: exits(3),
		},
		{
			Name: "args", Fields: []string{c + "args[]"}, Container: "{command: [sh, -c, exit $1, sh], args: ['3']}", Check: exits(3),
		},
		{
			Name: "workdir", Fields: []string{c + "workingDir"}, Container: "workingDir: /tmp", Script: "[ $PWD = /tmp ]",
		},
		{
			Name: "stdin-open", Fields: []string{c + "stdin"}, Container: "stdin: true", Script: "! [ /proc/self/fd/0 -ef /dev/null ]",
		},
	}
}

func succeeded(s *Seen) bool { return s.Phase() == corev1.PodSucceeded }

func pullFails(s *Seen) bool { return waits("ErrImagePull")(s) || waits("ImagePullBackOff")(s) }

// exits makes a Check: container c ends with this code.
func exits(code int32) func(s *Seen) Verdict {
	return func(s *Seen) Verdict {
		if s.Ended() == nil {
			return Undecided
		}
		return verdict(s.Ended().ExitCode == code)
	}
}

// says makes a Check: container c ends with this message.
func says(message string) func(s *Seen) Verdict {
	return func(s *Seen) Verdict {
		if s.Ended() == nil {
			return Undecided
		}
		return verdict(s.Ended().Message == message)
	}
}

// endRows are about how a container ends, and what happens then.
func endRows() []Row {
	const (
		rules = c + "restartPolicyRules[]."
		// second fails with 42 at first.
		second = "[ -e /d/first ] && exit 0; touch /d/first; exit 42"
		mount  = "volumeMounts: [{name: d, mountPath: /d}]"
		volume = "volumes: [{name: d, hostPath: {path: DIR}}]"
	)
	return []Row{
		{
			Name: "terminationmessagepath", Fields: []string{c + "terminationMessagePath"}, Check: says("here\n"),
			Container: "terminationMessagePath: /tmp/message", Script: "echo here > /tmp/message; echo there > /dev/termination-log",
		},
		{
			Name: "terminationmessagepolicy", Fields: []string{c + "terminationMessagePolicy"}, Check: says("why\n"),
			Container: "terminationMessagePolicy: FallbackToLogsOnError", Script: "echo why; exit 1",
		},
		{
			// An init container with it is a sidecar: it ends and is started again while c runs.
			Name: "sidecar", Fields: []string{"spec.initContainers[].restartPolicy"}, Script: forever,
			Spec: "initContainers: [{name: i, image: IMAGE, restartPolicy: Always, command: [sleep, '1']}]",
			Check: func(s *Seen) Verdict {
				i := s.Status("i")
				switch {
				case s.Status("c").State.Running == nil:
					return Undecided
				case i.State.Terminated == nil:
					return Holds
				case i.Ready: // as an init container is that has done its work
					return Fails
				}
				return Undecided
			},
		},
		{
			Name: "containerrestartpolicy", Fields: []string{c + "restartPolicy"}, Script: second,
			Container: "restartPolicy: OnFailure\n" + mount, Spec: volume,
		},
		{
			Name: "restartrules", Fields: []string{rules + "exitCodes.operator", rules + "exitCodes.values[]"}, Script: second,
			Otherwise: map[string]any{rules + "exitCodes.operator": "NotIn", rules + "exitCodes.values[]": []int{43}},
			Container: "{restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}], " + mount + "}", Spec: volume,
		},
		{
			// c ends when other is there, which is then started a second time.
			Name: "restartruleaction", Fields: []string{rules + "action"}, Script: "until [ -e /d/up ]; do sleep 0.1; done; " + second,
			Otherwise: map[string]any{rules + "action": "Restart"},
			Container: "{restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}], " + mount + "}",
			Spec:      volume + "\ncontainers: [{name: other, image: IMAGE, command: [sh, -c, \"touch /d/up; " + forever + "\"], " + mount + "}]",
			Check: func(s *Seen) Verdict {
				other := s.Status("other")
				if s.Ended() == nil || s.Ended().ExitCode != 0 || other.State.Running == nil {
					return Undecided
				}
				return verdict(other.RestartCount == 1)
			},
		},
	}
}

// portRows are about ports.
func portRows() []Row {
	const p = c + "ports[]."
	return []Row{
		{
			Name: "hostport", Fields: under(p, "hostPort", "containerPort", "protocol"),
			Otherwise: map[string]any{p + "containerPort": 8081, p + "protocol": "UDP"},
			Container: "ports: [{containerPort: 8080, hostPort: FREEPORT, protocol: TCP}]", Script: "trap 'exit 0' TERM; httpd -f -p 8080 & wait",
			Check: when(
				func(s *Seen) bool { return connects("127.0.0.1", s.FreePort) },
				func(s *Seen) bool {
					return s.Ready() && connects(s.Pod.Status.PodIP, "8080") && !connects("127.0.0.1", s.FreePort)
				},
			),
		},
		{
			Name: "hostip", Fields: under(p, "hostIP"),
			Container: "ports: [{containerPort: 8080, hostPort: FREEPORT, hostIP: 127.0.0.1}]", Script: "trap 'exit 0' TERM; httpd -f -p 8080 & wait",
			Check: func(s *Seen) Verdict {
				if !s.Ready() || !connects("127.0.0.1", s.FreePort) {
					return Undecided
				}
				return verdict(!connects(s.Pod.Status.HostIP, s.FreePort))
			},
		},
		{
			// The hook asks the port of that name; one that fails ends its container.
			Name: "portname", Fields: under(p, "name"), Spec: "terminationGracePeriodSeconds: 20",
			Container: "ports: [{name: right, containerPort: PORT}]\nlifecycle: {postStart: {httpGet: {host: 127.0.0.1, port: right}}}", Script: forever,
			Check: when(func(s *Seen) bool { return len(s.Requests) > 0 }, func(s *Seen) bool { return s.Ended() != nil }),
		},
	}
}

// connects says that somebody accepts connections there.
func connects(host, port string) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
