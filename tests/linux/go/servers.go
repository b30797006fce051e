// Servers and clients of one program, over TCP and UDP of 127.0.0.1; deadlines, a program executed.
// With a word as its argument it ends with what /proc/self/callsites says.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	clients  = 24
	messages = 40
	often    = 6000
)

// Answers each line in capitals until its client has gone.
func answer(connection net.Conn, served *atomic.Int64) {
	defer connection.Close()
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		// Before the client has it: the last ones to be answered would end the count.
		served.Add(1)
		fmt.Fprintln(connection, strings.ToUpper(lines.Text()))
	}
}

func ask(address string, number int) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	lines := bufio.NewReader(connection)
	for message := 0; message < messages; message++ {
		fmt.Fprintf(connection, "client %d says %d\n", number, message)
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		if line != fmt.Sprintf("CLIENT %d SAYS %d\n", number, message) {
			return fmt.Errorf("wrong line: %s", line)
		}
	}
	return nil
}

func tcp() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var served atomic.Int64
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(connection, &served)
		}
	}()
	var group sync.WaitGroup
	var failed atomic.Int64
	for number := 0; number < clients; number++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			if err := ask(listener.Addr().String(), number); err != nil {
				fmt.Println(err)
				failed.Add(1)
			}
		}(number)
	}
	group.Wait()
	listener.Close()
	fmt.Println("tcp: served", served.Load(), "failed", failed.Load())
}

// More than any buffer on the way, in one piece, read slowly.
func large() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() {
		connection, _ := listener.Accept()
		connection.Write(make([]byte, 3<<20))
		connection.Close()
	}()
	connection, _ := net.Dial("tcp", listener.Addr().String())
	count, err := io.Copy(io.Discard, connection)
	fmt.Println("large:", count, err)
	listener.Close()
}

func deadline() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	connection, _ := net.Dial("tcp", listener.Addr().String())
	connection.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	_, err := connection.Read(make([]byte, 1))
	fmt.Println("deadline:", errors.Is(err, os.ErrDeadlineExceeded))
	listener.Close()
	connection.Close()
	_, err = net.Dial("tcp", listener.Addr().String())
	fmt.Println("refused:", errors.Is(err, syscall.ECONNREFUSED))
}

func udp() {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		datagram := make([]byte, 2000)
		for {
			length, from, err := server.ReadFrom(datagram)
			if err != nil {
				return
			}
			server.WriteTo(datagram[:length], from)
		}
	}()
	client, _ := net.Dial("udp", server.LocalAddr().String())
	back := make([]byte, 2000)
	right := 0
	for number := 0; number < messages; number++ {
		fmt.Fprintf(client, "datagram %d", number)
		length, err := client.Read(back)
		if err == nil && string(back[:length]) == fmt.Sprintf("datagram %d", number) {
			right++
		}
	}
	fmt.Println("udp:", right)
	client.Close()
	server.Close()
}

func execute() {
	output, err := exec.Command("/bin/sh", "-c", "read word; echo got $word; exit 3").Output()
	fmt.Printf("executed: %q %v\n", output, err)
	command := exec.Command("/bin/cat")
	command.Stdin = strings.NewReader("through cat\n")
	output, err = command.Output()
	fmt.Printf("executed: %q %v\n", output, err)
}

func main() {
	tcp()
	large()
	deadline()
	udp()
	execute()
	parent := os.Getppid()
	wrong := 0
	for count := 0; count < often; count++ {
		if os.Getppid() != parent {
			wrong++
		}
	}
	fmt.Println("wrong answers", wrong)
	if len(os.Args) > 1 {
		text, _ := os.ReadFile("/proc/self/callsites")
		fmt.Print(string(text))
	}
}
