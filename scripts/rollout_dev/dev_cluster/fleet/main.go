// fleet-kubelet is the exec endpoint of nodes that do not exist.
//
// kwok plays the nodes of a large cluster and the life of their pods; the API server sends every
// exec of these pods here. Each container has a supervisor that speaks the protocol of
// docs/reference/supervisor.md and answers commands from a table instead of running them:
//
//	fleet-kubelet LISTEN ANSWERS.json API PKI
//
// PKI is the folder of the cluster's certificates.
//
// When a session ends, the container's end is reported to the API server, as a kubelet would.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
)

const (
	protocol      = "v5.channel.k8s.io"
	stdinChannel  = 0
	stdoutChannel = 1
	errorChannel  = 3
	closeChannel  = 255
)

// address names a container.
type address struct{ namespace, pod, container string }

type kubelet struct {
	answers []answer
	api     string
	client  *http.Client

	mutex       sync.Mutex
	supervisors map[address]*supervisor
}

func (k *kubelet) supervisor(at address) *supervisor {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	found, ok := k.supervisors[at]
	if !ok {
		found = newSupervisor(k.answers)
		k.supervisors[at] = found
	}
	return found
}

// ServeHTTP takes GET /exec/NAMESPACE/POD/CONTAINER in the protocol that the API server passes on
// to kubelets which declare ExtendWebSocketsToKubelet, as those do since 1.36.
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) != 4 || parts[0] != "exec" {
		http.Error(w, "only /exec is served", http.StatusNotFound)
		return
	}
	if !strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), protocol) {
		http.Error(w, "only "+protocol+" is served", http.StatusBadRequest)
		return
	}
	at := address{parts[1], parts[2], parts[3]}
	websocket.Server{
		Handshake: func(config *websocket.Config, _ *http.Request) error {
			config.Protocol = []string{protocol}
			return nil
		},
		Handler: func(connection *websocket.Conn) { k.exec(connection, at) },
	}.ServeHTTP(w, r)
}

// exec connects a stream to the container's supervisor, whatever the command is.
func (k *kubelet) exec(connection *websocket.Conn, at address) {
	connection.PayloadType = websocket.BinaryFrame
	in, stdin := io.Pipe()
	go func() { stdin.CloseWithError(copyStdin(connection, stdin)) }()
	ended, err := k.supervisor(at).serve(in, channel{connection, stdoutChannel})
	in.Close()
	status := `{"status":"Success"}`
	if err != nil {
		// What a relay exits with whose stream broke, or is refused.
		status = `{"status":"Failure","reason":"NonZeroExitCode","message":"a relay ended",` +
			`"details":{"causes":[{"reason":"ExitCode","message":"75"}]}}`
	}
	_, _ = channel{connection, errorChannel}.Write([]byte(status))
	if ended {
		k.end(at)
	}
}

// copyStdin copies the messages of channel 0 until the client closes it.
func copyStdin(connection *websocket.Conn, stdin io.Writer) error {
	for {
		var message []byte
		if err := websocket.Message.Receive(connection, &message); err != nil {
			return err
		}
		switch {
		case len(message) > 1 && message[0] == closeChannel && message[1] == stdinChannel:
			return io.EOF
		case len(message) > 1 && message[0] == stdinChannel:
			if _, err := stdin.Write(message[1:]); err != nil {
				return err
			}
		}
	}
}

// channel writes messages of one channel.
type channel struct {
	connection *websocket.Conn
	number     byte
}

func (c channel) Write(data []byte) (int, error) {
	_, err := c.connection.Write(append([]byte{c.number}, data...))
	return len(data), err
}

// end forgets a container, and reports its end.
func (k *kubelet) end(at address) {
	k.mutex.Lock()
	delete(k.supervisors, at)
	k.mutex.Unlock()
	if err := k.report(at); err != nil {
		log.Printf("%v: its end is not reported: %v", at, err)
	}
}

// report patches the pod's status, whose list of containers can only be replaced as a whole.
func (k *kubelet) report(at address) error {
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s", k.api, at.namespace, at.pod)
	read, err := k.do(http.MethodGet, url, nil)
	if read == nil || err != nil {
		return err
	}
	var pod struct {
		Status struct {
			ContainerStatuses []map[string]any `json:"containerStatuses"`
			Phase             string           `json:"phase"`
		} `json:"status"`
	}
	if err := json.Unmarshal(read, &pod); err != nil {
		return err
	}
	running := 0
	for _, each := range pod.Status.ContainerStatuses {
		if each["ready"] == true {
			running++
		}
		if each["name"] == at.container {
			running--
			finished := time.Now().UTC().Format(time.RFC3339)
			each["ready"], each["started"] = false, false
			each["state"] = map[string]any{"terminated": map[string]any{
				"exitCode": 0, "reason": "Completed", "finishedAt": finished}}
		}
	}
	if running == 0 {
		pod.Status.Phase = "Succeeded"
	}
	body, err := json.Marshal(map[string]any{"status": pod.Status})
	if err == nil {
		_, err = k.do(http.MethodPatch, url+"/status", body)
	}
	return err
}

// do returns the body of a response; nil where the pod no longer exists.
func (k *kubelet) do(method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	switch {
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("%s", read)
	}
	return read, err
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: fleet-kubelet LISTEN ANSWERS.json API PKI")
	}
	listen, table, api, pki := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	var answers []answer
	must(json.Unmarshal(must1(os.ReadFile(table)), &answers))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must1(os.ReadFile(filepath.Join(pki, "ca.crt"))))
	own, serving := pair(pki, "kubelet-client"), pair(pki, "kubelet")
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
		MaxConnsPerHost:     32,
		MaxIdleConnsPerHost: 32,
	}
	server := &http.Server{
		Addr: listen,
		Handler: &kubelet{
			answers:     answers,
			api:         api,
			client:      &http.Client{Transport: transport},
			supervisors: map[address]*supervisor{},
		},
		// Exec upgrades its connection, which HTTP/2 does not have; only the API server may ask.
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{serving},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    roots,
			NextProtos:   []string{"http/1.1"},
		},
	}
	log.Fatal(server.ListenAndServeTLS("", ""))
}

func pair(pki, name string) tls.Certificate {
	path := filepath.Join(pki, name)
	return must1(tls.LoadX509KeyPair(path+".crt", path+".key"))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must1[T any](value T, err error) T {
	must(err)
	return value
}
