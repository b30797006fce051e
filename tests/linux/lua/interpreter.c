/* Debian's Lua as a static program: runs the script that its argument names. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>

int main(int count, char **words)
{
    lua_State *lua = luaL_newstate();
    if (lua == NULL || count < 2) {
        fputs("a script is needed, and memory\n", stderr);
        return 2;
    }
    luaL_openlibs(lua);
    int failed = luaL_dofile(lua, words[1]) != LUA_OK;
    if (failed)
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
    lua_close(lua);
    return failed;
}
