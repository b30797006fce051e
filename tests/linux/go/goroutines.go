// Goroutines, channels, timers, files, a pipe, a recovered fault, and one that never blocks.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

func main() {
	fmt.Println("hello")
	numbers := make(chan int)
	var group sync.WaitGroup
	for n := 0; n < 16; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			for k := 0; k < 500; k++ {
				numbers <- n * k
			}
		}(n)
	}
	go func() { group.Wait(); close(numbers) }()
	sum := 0
	for n := range numbers {
		sum += n
	}
	fmt.Println("sum", sum)
	ticker := time.NewTicker(2 * time.Millisecond)
	for n := 0; n < 5; n++ {
		<-ticker.C
	}
	ticker.Stop()
	select {
	case <-time.After(5 * time.Millisecond):
		fmt.Println("timed out")
	}
	name := "/tmp/go-test"
	if err := os.WriteFile(name, []byte("written by go\n"), 0600); err != nil {
		fmt.Println(err)
	}
	text, err := os.ReadFile(name)
	fmt.Print(string(text), err, "\n")
	reader, writer, _ := os.Pipe()
	go func() { fmt.Fprintln(writer, "through a pipe"); writer.Close() }()
	line := make([]byte, 64)
	got, _ := reader.Read(line)
	fmt.Print(string(line[:got]))
	_, err = os.Open("/nosuch")
	fmt.Println(err)
	done := make(chan bool)
	go func() {
		defer func() { fmt.Println("recovered:", recover()); done <- true }()
		var nothing *int
		*nothing = 1
	}()
	<-done
	spin := true
	go func() { time.Sleep(10 * time.Millisecond); spin = false; done <- true }()
	for spin {
		time.Now()
		if !spin {
			break
		}
		select {
		case <-done:
			spin = false
		default:
		}
	}
	fmt.Println("end")
}
