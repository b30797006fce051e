/* Linux as the first process: file systems, the network card's modules, its address. */
#ifndef LINUX_H
#define LINUX_H

void become_init(void);

#endif
